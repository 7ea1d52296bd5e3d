"""Small real traces damaged at random: whatever happens is said, and what the damage did not touch is read."""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.trace import Trace, TraceError, read_trace
from tests.profiler.trace.files import EXPECTED, plain
from tests.profiler.trace.read.test_truncation import starts_of_events

NAMES = (
    "hta_triton_example.json.gz",
    "tl_moe_01_many_experts_few_tokens.json.gz",
    "hta_mi250_minitoy.json.gz",
    "kineto_docs_before_fix.json",
    "tl_vllm_decode_full_exec.json.gz",
)
_NUMBER = re.compile(rb'"(?:ts|dur|correlation|stream|device|External id|grid|warps per SM)": ?(-?[\d.]+)(?=[,\s}])')
_STRING = re.compile(rb'(?<=": ")[^"\\]*(?=")')

SAID = {"truncated", "dropped-events"}
"""Codes of the notes that say what was lost."""


@dataclass(frozen=True)
class Sample:
    """A real trace, where its events start, and its numbers and strings."""

    name: str
    text: bytes
    starts: list[int]
    numbers: list[tuple[int, int]]
    strings: list[tuple[int, int]]

    def touched(self, a: int, b: int) -> int:
        """How many events bytes [a, b) lie in, with the commas between them."""
        return max(1, bisect_left(self.starts, b) - bisect_right(self.starts, a) + 1)


@cache
def sample(name: str) -> Sample:
    text = plain(name)
    text = text.decode("utf-8").encode("ascii", "replace")
    opening = re.search(rb'"traceEvents"\s*:\s*\[', text)
    assert opening is not None
    starts = starts_of_events(text.decode(), opening.end())
    assert len(starts) == EXPECTED[name]["events"]
    return Sample(
        name,
        text,
        starts,
        [m.span(1) for m in _NUMBER.finditer(text, opening.end())],
        [m.span() for m in _STRING.finditer(text, opening.end())],
    )


def rows(trace: Trace) -> int:
    """Events that became rows of any column that is compared here."""
    return len(trace.ops.name) + len(trace.kernels.name) + len(trace.memory.name) + len(trace.annotations.name)


@cache
def whole(name: str, folder: Path) -> tuple[int, int]:
    """(events, rows) of the undamaged trace."""
    path = folder / name.removesuffix(".gz")
    path.write_bytes(sample(name).text)
    trace = read_trace(path)
    return trace.events, rows(trace)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every example overwrites."""
    return tmp_path_factory.mktemp("damaged") / "trace.json"


def check_said(trace: Trace) -> None:
    """What was dropped is counted and shown; what is empty says so."""
    codes = {note.code for note in trace.notes}
    assert ("dropped-events" in codes) == bool(trace.dropped)
    assert ("truncated" in codes) == trace.truncated
    assert trace.dropped <= trace.events
    if not len(trace.kernels.name):
        assert "no-kernels" in codes
    assert trace.kernels.op.max(initial=-1) < len(trace.ops.name)


NOISE = st.one_of(
    st.binary(min_size=1, max_size=12),
    st.sampled_from(
        [b'"', b"\\", b"}", b"{", b"]", b"[", b",", b"},{", b"}],", b"}]}", b'"}', b"\x00", b"\xff\xfe", b"\n",
         b"\\u12",          b'"ph": "X",', b"null", b"]]]}}}", b'"traceEvents": [']
    ),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(NAMES),
    at=st.floats(0, 1, exclude_max=True),
    length=st.one_of(st.just(0), st.integers(1, 40), st.integers(1, 3000)),
    noise=st.one_of(st.just(b""), NOISE),
)
def test_bytes_replaced_inside_the_list_cost_the_events_they_touch(
    path: Path, name: str, at: float, length: int, noise: bytes
) -> None:
    s = sample(name)
    events, all_rows = whole(name, path.parent)
    a = s.starts[0] + int(at * (s.starts[-1] - s.starts[0]))
    b = min(a + length, s.starts[-1])
    path.write_bytes(s.text[:a] + noise + s.text[b:])
    trace = read_trace(path)
    check_said(trace)
    if trace.truncated:
        return  # the noise ended the list, and that is said
    # An event on each side of the damage may be lost with it: then they have become one piece.
    lost = s.touched(a, b) + 1
    assert trace.events >= events - lost
    assert rows(trace) >= all_rows - lost
    assert trace.events <= events + noise.count(b"{") + 1


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    picks=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(
                [b"NaN", b"Infinity", b"-Infinity", b"inf", b"nan", b"N/A", b"1e999", b"10159970886766084423", b"null",
                 b'"12"', b'"N/A"', b"[]", b"{}", b"true", b"-1", b"123456789012345678901234567890"]
            ),
        ),
        min_size=1,
        max_size=6,
    ),
)  # fmt: skip
def test_numbers_that_are_none_cost_their_own_event_at_most(
    path: Path, name: str, picks: list[tuple[float, bytes]]
) -> None:
    s = sample(name)
    events, all_rows = whole(name, path.parent)
    text = s.text
    spans = {s.numbers[int(at * len(s.numbers))]: word for at, word in picks}
    for (a, b), word in sorted(spans.items(), reverse=True):
        text = text[:a] + word + text[b:]
    path.write_bytes(text)
    trace = read_trace(path)
    check_said(trace)
    assert trace.events == events
    assert not trace.truncated
    # Each row that is gone was counted as dropped.
    assert rows(trace) >= all_rows - trace.dropped
    assert trace.dropped <= len(spans)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    picks=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(
                [b"\xff", b"\xc3", b"\x00", b"\x1f", b"\n", b"\t", b"C:\\temp", b"\\q", b"\\u12", b"}, {", b"}],",
                 b"[{",                  b'\\"', b"\xed\xa0\x80", b'"traceEvents": ['.replace(b'"', b'\\"')]
            ),
        ),
        min_size=1,
        max_size=6,
    ),
)  # fmt: skip
def test_text_that_is_none_costs_no_event(path: Path, name: str, picks: list[tuple[float, bytes]]) -> None:
    s = sample(name)
    events, _ = whole(name, path.parent)
    text = s.text
    for a, word in sorted({s.strings[int(at * len(s.strings))][1]: word for at, word in picks}.items(), reverse=True):
        text = text[:a] + word + text[a:]
    path.write_bytes(text)
    trace = read_trace(path)
    check_said(trace)
    assert (trace.events, trace.dropped, trace.truncated) == (events, 0, False)


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    at=st.floats(0, 1, exclude_max=True),
    noise=st.binary(min_size=1, max_size=30),
    level=st.sampled_from([0, 1, 9]),
)
def test_a_packed_file_with_bad_bytes_says_what_is_lost(
    path: Path, name: str, at: float, noise: bytes, level: int
) -> None:
    s = sample(name)
    events, _ = whole(name, path.parent)
    packed = gzip.compress(s.text, compresslevel=level)
    a = int(at * len(packed))
    path.write_bytes(packed[:a] + noise + packed[a + len(noise) :])
    try:
        trace = read_trace(path)
    except TraceError as refused:
        assert refused.code in {"trace-empty", "trace-bad-gzip", "trace-not-json", "trace-not-a-trace"}
        return
    check_said(trace)
    assert trace.truncated or trace.events >= events - 8


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), begin=st.floats(0, 1), size=st.integers(1, 6000), times=st.integers(1, 3))
def test_pieces_written_twice_lose_nothing_that_is_whole(
    path: Path, name: str, begin: float, size: int, times: int
) -> None:
    s = sample(name)
    events, all_rows = whole(name, path.parent)
    a = s.starts[0] + int(begin * (s.starts[-1] - s.starts[0]))
    b = min(a + size, s.starts[-1])
    path.write_bytes(s.text[:b] + s.text[a:b] * times + s.text[b:])
    trace = read_trace(path)
    check_said(trace)
    if not trace.truncated:
        assert trace.events >= events - 2 * times
        assert rows(trace) >= all_rows - 2 * times
