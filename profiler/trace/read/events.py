"""One trace event: typed decoding, and the repairs that a damaged one needs.

Only the fields that Trace keeps are decoded; msgspec skips the others without building objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar, Union

import msgspec
from msgspec import Raw

from profiler.trace.model import NONE

_ABSENT = Raw(b"")


class Args(msgspec.Struct, gc=False):
    """The args that Trace uses, under both generations of names, in the order in which torch writes them."""

    external: int = msgspec.field(default=NONE, name="External id")
    record: int = msgspec.field(default=NONE, name="Record function id")
    sequence: int = msgspec.field(default=NONE, name="Sequence number")
    concrete: Raw = msgspec.field(default=_ABSENT, name="Concrete Inputs")
    types: Raw = msgspec.field(default=_ABSENT, name="Input type")
    strides: Raw = msgspec.field(default=_ABSENT, name="Input Strides")
    dims: Raw = msgspec.field(default=_ABSENT, name="Input Dims")
    device: int = NONE
    stream: int | str = NONE
    correlation: int = NONE
    external_old: int = msgspec.field(default=NONE, name="external id")
    backend: Raw = msgspec.field(default=_ABSENT, name="kernel_backend")
    file: Raw = msgspec.field(default=_ABSENT, name="kernel_file")
    dims_old: Raw = msgspec.field(default=_ABSENT, name="Input dims")
    call_stack: Raw = msgspec.field(default=_ABSENT, name="Call stack")


class Event(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event (phase X): the only ones with a duration. ts and dur in microseconds.

    ts: NaN where absent. Either is NaN where it is no number.
    """

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: float = float("nan")
    dur: float = 0.0
    args: Args | None = None


class OtherPhase(msgspec.Struct, gc=False):
    """An event of another phase (flows, instants, metadata): counted, and nothing of it decoded."""

    cat: ClassVar[str] = ""


class Phaseless(msgspec.Struct, gc=False):
    """An object among the events without a phase: some writer's, but no trace event."""

    cat: ClassVar[str] = ""


AnyEvent = Event | OtherPhase | Phaseless

# The tag tells msgspec which fields to decode before it builds anything: a third of the events of a real trace are
# flows, and unpacking and decoding takes 1.06 to 1.15 times less than with one struct for all phases.
_PHASES = [
    msgspec.defstruct(f"Phase{code}", [], bases=(OtherPhase,), tag_field="ph", tag=chr(code), gc=False)
    for code in range(0x21, 0x7F)
    if chr(code) != "X"
]


class DeviceProperties(msgspec.Struct, gc=False):
    """One GPU in the header, of whatever types a writer gave its values."""

    name: object = None
    major: object = msgspec.field(default=None, name="computeMajor")
    minor: object = msgspec.field(default=None, name="computeMinor")
    processors: object = msgspec.field(default=None, name="numSms")
    warp_size: object = msgspec.field(default=None, name="warpSize")
    memory_bytes: object = msgspec.field(default=None, name="totalGlobalMem")


class Header(msgspec.Struct, gc=False):
    """The keys other than traceEvents that Trace uses."""

    devices: list[DeviceProperties] | None = msgspec.field(default=None, name="deviceProperties")
    record_shapes: object = None
    with_stack: object = None
    with_modules: object = None
    distributed: object = msgspec.field(default=None, name="distributedInfo")
    program: object = msgspec.field(default=None, name="tritonworthyProgram")

    def or_else(self, after: Header) -> Header:
        """These keys, and those of `after` where one is missing."""
        return Header(
            devices=self.devices or after.devices,
            record_shapes=self.record_shapes if self.record_shapes is not None else after.record_shapes,
            with_stack=self.with_stack if self.with_stack is not None else after.with_stack,
            with_modules=self.with_modules if self.with_modules is not None else after.with_modules,
            distributed=self.distributed if self.distributed is not None else after.distributed,
            program=self.program if self.program is not None else after.program,
        )


_EITHER: type[AnyEvent] = Union[(Event, *_PHASES)]  # type: ignore[assignment]
_ONE = msgspec.json.Decoder(_EITHER)
_STRICT = msgspec.json.Decoder(list[_EITHER])  # type: ignore[valid-type]
_LENIENT = msgspec.json.Decoder(list[_EITHER], strict=False)  # type: ignore[valid-type]
_HEADER = msgspec.json.Decoder(Header)

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for text that is not JSON or not of the type. Bad UTF-8 in a string is UnicodeDecodeError."""


def decode_list(text: bytes | memoryview) -> list[AnyEvent]:
    """Events of `[{...}, {...}]`. Raises one of MALFORMED unless the text is exactly a list of whole events.

    A cut inside a string or a nested list cannot decode, so a wrong cut is never accepted.
    """
    return _STRICT.decode(text)


def decode(text: bytes) -> list[AnyEvent]:
    """As `decode_list`, of `{...}, {...}`."""
    return _STRICT.decode(b"[" + text + b"]")


def decode_lenient(text: bytes) -> list[AnyEvent]:
    """As `decode`; numbers may be strings, as some writers have timestamps."""
    return _LENIENT.decode(b"[" + text + b"]")


def decode_header(text: bytes) -> Header:
    """The keys other than traceEvents. Raises one of MALFORMED."""
    try:
        return _HEADER.decode(text)
    except MALFORMED:
        return _HEADER.decode(repair(text))


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[-+]?\b(?:NaN|nan|Infinity|infinity|inf|Inf|N/A)\b', re.DOTALL)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrtu]|$)|\\u(?![0-9a-fA-F]{4})')
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})")
"""Group 1: half of a surrogate pair without the other half, which no UTF-8 can say."""
_REPAIR_BYTES = 1024 * 1024
"""Longer text is left alone: an event has some hundred bytes, and a repair needs many times the text's memory."""
_CONTROL = re.compile(rb"[\x00-\x1f]")


def _repair_token(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if not token.startswith(b'"'):
        return b"null"
    inner = token[1:-1]
    if b"\\" in inner:
        # `C:\data` as Windows writes it: a backslash pair is kept, a lone one before no escape is doubled.
        parts = (_BAD_ESCAPE.sub(lambda m: b"\\" + m.group(), part) for part in inner.split(b"\\\\"))
        inner = b"\\\\".join(_HALF_PAIR.sub(lambda m: b"\\ufffd" if m[1] else m.group(), part) for part in parts)
    return b'"' + _CONTROL.sub(b" ", inner) + b'"'


def repair(text: bytes) -> bytes:
    """JSON text with NaN, inf and N/A as null, stray backslashes doubled, control characters blank, UTF-8 valid.

    Seen in: kineto#105 (inf), #80 (bytes), pytorch#98432 (backslash), pytorch#130622 (control character).
    """
    if len(text) > _REPAIR_BYTES:
        return text
    valid = text.decode("utf-8", "replace").encode()
    return _TOKEN.sub(_repair_token, valid)


def decode_one(text: bytes) -> AnyEvent | None:
    """One event out of `{...}`; None where it is not exactly one object."""
    try:
        return _ONE.decode(text)
    except MALFORMED:
        return None


def decode_repaired(text: bytes) -> AnyEvent | None:
    """As `decode_one`, after repair and with any field of any type."""
    try:
        loose = json.loads(repair(text))
    except (ValueError, RecursionError):
        return None
    return _coerce(loose) if isinstance(loose, dict) else None


def _coerce(loose: dict[str, object]) -> AnyEvent:
    phase = _text(loose.get("ph"))
    if phase != "X":
        return OtherPhase() if phase else Phaseless()
    args = loose.get("args")
    return Event(
        cat=_text(loose.get("cat")),
        name=_text(loose.get("name")),
        pid=_identity(loose.get("pid")),
        tid=_identity(loose.get("tid")),
        ts=_number(loose.get("ts"), float("nan")),
        dur=_number(loose.get("dur", 0.0), float("nan")),
        args=_coerce_args(args) if isinstance(args, dict) else None,
    )


def _coerce_args(loose: dict[str, object]) -> Args:
    def integer(key: str) -> int:
        value = loose.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        number = _number(value, float("nan"))
        return int(number) if abs(number) < 2**53 and number.is_integer() else NONE

    def raw(key: str, kind: type = list) -> Raw:
        try:
            return Raw(msgspec.json.encode(loose[key])) if isinstance(loose.get(key), kind) else _ABSENT
        except UnicodeEncodeError:  # half a surrogate pair in a text too long for repair
            return _ABSENT

    return Args(
        external=integer("External id"),
        record=integer("Record function id"),
        sequence=integer("Sequence number"),
        concrete=raw("Concrete Inputs"),
        types=raw("Input type"),
        strides=raw("Input Strides"),
        dims=raw("Input Dims"),
        device=integer("device"),
        stream=_identity(loose["stream"]) if "stream" in loose else NONE,
        correlation=integer("correlation"),
        external_old=integer("external id"),
        dims_old=raw("Input dims"),
        backend=raw("kernel_backend", str),
        file=raw("kernel_file", str),
    )


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _identity(value: object) -> int | str:
    """A pid or tid as strict decoding has it, so that a repaired event stays on its thread."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _number(value: object, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return otherwise
    try:
        return float(value)
    except (ValueError, OverflowError):
        return otherwise


_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")


def split_events(text: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of what lies between `}` and `, {`: one event each, unless a `}, {` lies inside one."""
    start = 0
    for match in _BOUNDARY.finditer(text):
        yield start, match.start() + 1
        start = match.end()
    yield start, len(text)
