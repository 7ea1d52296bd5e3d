"""A file may end, or break, at any byte: that is read, or refused by a TraceError, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.trace import TraceError, read_trace
from profiler.trace.errors import Damage
from profiler.trace.model import NONE
from tests.profiler.trace.files import EXPECTED, SMALL, TRACES, plain


def starts_of_events(text: str, at: int) -> list[int]:
    """Where each element of the list that begins at `at` starts. The traces are ASCII: characters are bytes."""
    decoder = json.JSONDecoder()
    starts = []
    while True:
        at = next(i for i in range(at, len(text)) if text[i] not in " \n\r\t,")
        if text[at] == "]":
            return starts
        starts.append(at)
        _, at = decoder.raw_decode(text, at)


_PLAIN = plain(SMALL)
_PACKED = (TRACES / SMALL).read_bytes()
_LIST = re.search(rb'"traceEvents"\s*:\s*\[', _PLAIN)
assert _LIST is not None
_EVENTS = starts_of_events(_PLAIN.decode(), _LIST.end())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every example overwrites."""
    return tmp_path_factory.mktemp("cut") / "trace.json"


def test_the_counting_of_events_below_is_right() -> None:
    assert len(_EVENTS) == EXPECTED[SMALL]["events"]


@settings(max_examples=120, deadline=None)
@given(cut=st.integers(0, len(_PLAIN) - 1))
def test_cut_anywhere_the_whole_events_before_the_cut_are_read(path: Path, cut: int) -> None:
    path.write_bytes(_PLAIN[:cut])
    assert _LIST is not None
    if cut < _LIST.end():
        with pytest.raises(TraceError) as refused:
            read_trace(path)
        assert refused.value.code in {"trace-empty", "trace-not-json"}
        return
    trace = read_trace(path)
    begun = sum(start < cut for start in _EVENTS)
    assert begun - 1 <= trace.events <= begun
    assert trace.dropped == 0
    # Only the brackets and keys after the last event may be missing for the cut to go unnoticed.
    assert trace.truncated or trace.events == len(_EVENTS)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(_PACKED) - 1))
def test_a_gzip_cut_anywhere_reads_or_is_refused(path: Path, cut: int) -> None:
    path.write_bytes(_PACKED[:cut])
    try:
        trace = read_trace(path)
    except TraceError as refused:
        assert refused.code in {"trace-empty", "trace-not-json", "trace-bad-gzip"}
    else:
        # Cut inside the checksum, which is all that is missing then.
        assert trace.truncated or (trace.damage == Damage.NO_CHECKSUM and trace.events == len(_EVENTS))
        assert trace.dropped == 0


@settings(max_examples=80, deadline=None)
@given(at=st.integers(0, len(_PLAIN) - 1), noise=st.binary(min_size=1, max_size=12))
def test_bytes_overwritten_anywhere_lose_few_events(path: Path, at: int, noise: bytes) -> None:
    path.write_bytes(_PLAIN[:at] + noise + _PLAIN[at + len(noise) :])
    try:
        trace = read_trace(path)
    except TraceError as refused:
        assert refused.code in {"trace-not-json", "trace-not-a-trace"}
        assert _LIST is not None
        assert at < _LIST.end()
        return
    assert trace.events >= len(_EVENTS) - 12
    assert trace.dropped <= 12
    assert trace.kernels.op.max(initial=NONE) < len(trace.ops.name)


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_at_all_are_refused_or_read(path: Path, data: bytes) -> None:
    path.write_bytes(b'{"traceEvents": [' + data)
    trace = read_trace(path)
    assert len(trace.kernels.op) == 0


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=400))
def test_a_gzip_of_noise_never_crashes(path: Path, data: bytes) -> None:
    path.write_bytes(b"\x1f\x8b\x08\x00" + data)
    with pytest.raises(TraceError):
        read_trace(path)
