"""What schemathesis cannot know of this API: texts that are regions, ids that are there, forms that take any part.

Loaded by name (SCHEMATHESIS_HOOKS) into the process of `schemathesis run`; FURNISHED names a file with ids.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.analysis.candidates import known_names
from app.web.server.codes import ANY
from benchmarks.server.load import region
from profiler.hardware import DEVICES
from tests.app.web.routes import CONTRACT
from tests.conftest import ROOT

REGIONS = [region(random.Random(n)) for n in range(12)] + [
    (ROOT / "tests" / "regions" / f"{name}.txt").read_text()
    for name in ("bias_gelu_mask", "add_rmsnorm_residual", "fp8_quant_per_token")
]
IDS: dict[str, list[str]] = json.loads(Path(os.environ["FURNISHED"]).read_text())
"""Of things that are there, by the name of the parameter."""

schemathesis.openapi.format("region", st.sampled_from(REGIONS))
schemathesis.openapi.format("device", st.sampled_from([d.name for d in DEVICES]))
schemathesis.openapi.format("id", st.sampled_from(IDS["region_id"]))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Three of four ids are of something that is there; what a schema cannot say of a body is put right."""
    for name, known in IDS.items():
        given = case.path_parameters.get(name) if case.path_parameters else None
        if (
            isinstance(given, str)
            and case.method != "DELETE"
            and (place := zlib.crc32(given.encode("utf-8", "replace"))) % 4
        ):
            case.path_parameters[name] = known[place % len(known)]
    if case.meta is not None and case.meta.generation.mode.is_positive and isinstance(case.body, dict):
        _put_right(case.body)


def _put_right(body: dict[str, Any]) -> None:
    """Sizes are of the region's symbols, which these texts have none of; candidates and devices are known names."""
    if isinstance(body.get("region"), str) and body["region"] not in REGIONS:
        body["region"] = REGIONS[len(body["region"]) % len(REGIONS)]
    if body.get("shapes"):
        body["shapes"] = None
    if body.get("candidates"):
        body["candidates"] = [known_names()[len(body["candidates"]) % len(known_names())]]
    if body.get("device") and isinstance(body["device"], list):
        body["device"] = ["cpu"]
    for field, name in (("traces", "trace_id"), ("region_ids", "region_id")):
        if body.get(field):
            body[field] = IDS[name][:1]
    if body.get("baseline") and isinstance(body["baseline"], str):
        body["baseline"] = IDS["trace_id"][0] if len(body.get("traces") or ()) == 1 else None
    if isinstance(body.get("widget"), dict):
        body["region"] = None


@schemathesis.check
def accepts_what_the_schema_accepts(context: Any, response: Any, case: Any) -> bool | None:
    """As positive_data_acceptance; a refusal by a code that the description names is one as well."""
    if response.status_code == 422 and _is_told_in(case, response, ANY[422]):
        return None
    return bool(positive_data_acceptance(context, response, case))


@schemathesis.check
def refuses_what_the_schema_refuses(context: Any, response: Any, case: Any) -> bool | None:
    """As negative_data_rejection; but a part of a form is a text or a file, and either is taken for a file. And it
    knows none of our formats' rules: what is to break one may be a good region's text all the same."""
    good = isinstance(case.body, dict) and len(case.body) == 1 and case.body.get("region") in REGIONS
    if case.media_type == "multipart/form-data" or good:
        return None
    return bool(negative_data_rejection(context, response, case))


@schemathesis.check
def fails_only_as_described(context: Any, response: Any, case: Any) -> bool | None:
    """No 500; and 503 and 507 only by a code that the description names for this operation."""
    if response.status_code >= 500:
        assert _is_told_in(case, response, ANY[500]), response.text[:500]
    return None


@schemathesis.check
def names_its_codes(context: Any, response: Any, case: Any) -> bool | None:
    """Every problem has a code that the description names for this operation and status."""
    status = response.status_code
    if status >= 400 and status not in (404, 405):
        assert _is_told_in(case, response), f"{status} {_code(response)} is not named for {' '.join(_route(case))}"
    return None


def _is_told_in(case: Any, response: Any, but: tuple[str, ...] = ()) -> bool:
    code = _code(response)
    named = CONTRACT.codes(*_route(case), response.status_code)
    told = any(code.startswith(name) if name.endswith("-") else code == name for name in named)
    return code not in but and told


def _route(case: Any) -> tuple[str, str]:
    return case.operation.method.upper(), case.operation.path


def _code(response: Any) -> str:
    return str(json.loads(response.content)["code"])
