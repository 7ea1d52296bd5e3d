"""zstd is unpacked as the library that wrote it would, as far as it is whole, and in bounds."""

from __future__ import annotations

import builtins
import random
import sys
import tracemalloc
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.errors import Damage
from profiler.trace.read.formats.unzstd import Unzstd
from profiler.trace.read.limits import CHUNK_BYTES
from profiler.trace.read.source import Source
from tests.profiler.trace.files import LARGER, SMALL, plain, real, written

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Pieces:
    """Packed bytes that come in pieces of a size."""

    truncated = False

    def __init__(self, data: bytes, size: int) -> None:
        self.parts = [data[at : at + size] for at in range(0, len(data), size)][::-1]

    def read(self) -> bytes:
        return self.parts.pop() if self.parts else b""


def unpacked(data: bytes, size: int = CHUNK_BYTES) -> tuple[bytes, Unzstd]:
    stream = Unzstd(Pieces(data, size))
    parts = []
    while part := stream.read():
        assert len(part) <= CHUNK_BYTES
        parts.append(part)
    return b"".join(parts), stream


TEXT = b"".join(b'{"name": %d},' % number for number in range(60_000))
CHECKED = {zstd.CompressionParameter.checksum_flag: 1}


@pytest.mark.parametrize("size", [1, 7, 4096, CHUNK_BYTES])
def test_one_frame_and_several_come_out_as_they_went_in(size: int) -> None:
    text = TEXT[:20_000] if size == 1 else TEXT
    several = zstd.compress(text[:9_000]) + zstd.compress(b"") + zstd.compress(text[9_000:], options=CHECKED)
    skippable = b"\x53\x2a\x4d\x18\x04\0\0\0none" + zstd.compress(text[:10]) + b"\x5f\x2a\x4d\x18\0\0\0\0"
    for packed, expected in ((zstd.compress(text), text), (several, text), (skippable, text[:10])):
        if packed is skippable:
            packed = skippable[12:]  # a file that begins with one is not known to be zstd
        data, stream = unpacked(packed, size)
        assert data == expected
        assert (stream.truncated, stream.damage) == (False, Damage.NONE)


def test_a_cut_stream_gives_what_came_before_the_cut() -> None:
    packed = zstd.compress(TEXT)
    for cut in (len(packed) // 2, len(packed) - 1):
        data, stream = unpacked(packed[:cut])
        assert stream.truncated
        assert data and TEXT.startswith(data)


def test_a_flipped_bit_is_never_a_fault_and_a_checksum_tells() -> None:
    packed = zstd.compress(TEXT, options=CHECKED)
    rng = random.Random(4)
    told = 0
    for _ in range(200):
        broken = bytearray(packed)
        broken[rng.randrange(4, len(broken))] ^= 1 << rng.randrange(8)
        try:
            data, stream = unpacked(bytes(broken))
        except TraceError as error:
            assert error.code == "trace-bad-zstd"
            told += 1
            continue
        told += stream.truncated or stream.damage != Damage.NONE
        assert stream.truncated or stream.damage != Damage.NONE or data == TEXT
    assert told > 190


def test_what_follows_the_last_frame_is_told() -> None:
    packed = zstd.compress(TEXT)
    assert unpacked(packed + bytes(512))[1].damage == Damage.NONE
    data, stream = unpacked(packed + b"tail")
    assert (data, stream.damage) == (TEXT, Damage.TRAILING_BYTES)


def test_a_window_that_needs_too_much_memory_is_refused() -> None:
    wide = zstd.compress(TEXT * 3, options={zstd.CompressionParameter.window_log: 30,
                                            zstd.CompressionParameter.enable_long_distance_matching: 1,
                                            zstd.CompressionParameter.content_size_flag: 0})  # fmt: skip
    with pytest.raises(TraceError) as refused:
        unpacked(wide[:4] + bytes([0b00000000, 20 << 3 | 7]) + wide[6:])  # a frame's header that asks for 1.9 GiB
    assert refused.value.code == "trace-bad-zstd"


def test_a_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    bomb = zstd.compress(b'{"traceEvents": [' + b" " * (300 * 1024**2))
    assert len(bomb) < 100_000
    path = written(tmp_path, bomb)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError) as refused:
            read_trace(path, Limits(max_event_bytes=1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024**2
    finally:
        tracemalloc.stop()
    assert refused.value.code == "trace-too-large"
    with Source(path, Limits(max_bytes=10_000_000)) as source, pytest.raises(TraceError, match="larger than"):
        deque(iter(source.read, b""), maxlen=0)


@pytest.mark.parametrize("name", [SMALL, LARGER])
def test_a_trace_that_was_compressed_by_zstd_reads_as_the_file_itself(name: str, tmp_path: Path) -> None:
    trace, whole = read_trace(written(tmp_path, zstd.compress(plain(name)), "trace.json.zst")), real(name)
    assert (trace.events, trace.dropped, trace.truncated, trace.damage) == (whole.events, 0, False, Damage.NONE)
    assert trace.kernels.op.tolist() == whole.kernels.op.tolist()
    assert trace.kernels.duration_us.tolist() == whole.kernels.duration_us.tolist()


def test_two_processes_read_a_large_one_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler.trace.read import parallel_reader

    monkeypatch.setattr(parallel_reader, "PACKED_BYTES", 1)
    path = written(tmp_path, zstd.compress(plain(LARGER)), "trace.json.zst")
    assert parallel_reader.pays(path, 2)
    both, alone = read_trace(path, processes=2), read_trace(path, processes=1)
    assert both.ops.start_us.tolist() == alone.ops.start_us.tolist()
    assert both.kernels.op.tolist() == alone.kernels.op.tolist()


def test_a_cut_trace_is_read_as_far_as_it_goes_and_says_so(tmp_path: Path) -> None:
    packed = zstd.compress(plain(LARGER))
    trace = read_trace(written(tmp_path, packed[: len(packed) * 3 // 4]))
    assert trace.truncated
    assert 0 < trace.events < real(LARGER).events
    assert "truncated" in [note.code for note in trace.notes]


def test_without_the_library_other_files_are_read_and_zstd_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] in ("compression", "backports"):
            raise ImportError(name)
        return real_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert read_trace(written(tmp_path, plain(SMALL))).events == real(SMALL).events
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, zstd.compress(plain(SMALL))))
    assert refused.value.code == "trace-zstd-missing"
    assert "pip install backports.zstd" in refused.value.remedy
