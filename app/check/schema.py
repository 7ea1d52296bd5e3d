"""What `check` and `assertions` of a request may hold, as JSON Schema: made from the tables that config reads by."""

from __future__ import annotations

from typing import Any, TypeAlias

from app.check.config import _OF_CHECK, _TYPES, MAX_ASSERTIONS, NAME, OPTIONS, REQUIRED
from app.check.config_error import LEVELS, MAX_TEXT

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

LEVEL: Schema = {"type": "string", "enum": list(LEVELS)}
OFF: Schema = {"type": "string", "enum": ["off"]}


def check_schema() -> Schema:
    """How regions are looked at."""
    fields: Schema = {name: _value(name) for name in _OF_CHECK}
    fields["name"] = {**fields["name"], "pattern": f"^{NAME.pattern}$"}
    fields["device"] = {**fields["device"], "format": "device"}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def assertions_schema() -> Schema:
    """Assertions by name; `beats:rms_norm` and the like for more than one of a kind."""
    kinds = {name: _assertion(name) for name in OPTIONS}
    named = {f"^{name}:.{{1,{MAX_TEXT - len(name) - 1}}}$": schema for name, schema in kinds.items()}
    return {
        "type": "object",
        "properties": kinds,
        "patternProperties": named,
        "additionalProperties": False,
        "maxProperties": MAX_ASSERTIONS,
    }


def _assertion(name: str) -> Schema:
    needed = REQUIRED.get(name)
    options = {key: _value(key) for key in sorted(OPTIONS[name])}
    if name == "beats":
        options["evidence"] = {"type": "string", "enum": ["recorded", "measured"]}
    more = {"type": "object", "properties": options, "additionalProperties": False}
    whole = {**more, "properties": {"level": LEVEL, **options}, "required": ["level", *([needed] if needed else [])]}
    pair = {"type": "array", "prefixItems": [LEVEL, {**more, "required": [needed] if needed else []}], "items": False,
            "minItems": 2, "maxItems": 2}  # fmt: skip
    return {"anyOf": [OFF if needed else LEVEL, whole, pair]}


def _value(key: str) -> Schema:
    wanted = _TYPES[key]
    if wanted is bool:
        return {"type": "boolean"}
    if isinstance(wanted, tuple):
        return {"type": "string", "enum": list(wanted)}
    if isinstance(wanted, type):
        return {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
    return {"type": "number", "minimum": wanted.low, "maximum": wanted.high}
