"""Whether JSON is exactly what its type says: no key more, none less, no other kind of value."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[list[Any]]:
    # In a list, for a TypedDict by itself takes no configuration.
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid", strict=True))


def differences(kind: Any, value: object) -> list[str]:
    """Where a value of plain JSON is not what a TypedDict of app.objects says; [] for one that is."""
    try:
        _adapter(kind).validate_python([value])
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()]
    return []
