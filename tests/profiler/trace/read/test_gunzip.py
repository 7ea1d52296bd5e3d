"""A damaged gzip file: what can be unpacked is read, and whatever is wrong is said. zlib byte by byte is the oracle."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.trace_report.companions import Companion, lend, observe
from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.errors import Damage
from profiler.trace.execution_trace import read_execution
from profiler.trace.read.assemble import assemble
from profiler.trace.read.gunzip import Gunzip
from profiler.trace.read.parallel_reader import read_in_two
from tests.conftest import ROOT
from tests.profiler.trace.files import written

TEXT = gzip.decompress((ROOT / "app" / "examples" / "vit_base.json.gz").read_bytes())
EVENTS = TEXT.count(b'"ph":') or TEXT.count(b'"ph" :')
HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"


def member(text: bytes, *, checksum: int = 0, size: int = 0, trailer: int = 8, header: bytes = HEADER) -> bytes:
    """A gzip member. checksum, size: by how much the trailer's are wrong; trailer: how many of its bytes there are."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = packer.compress(text) + packer.flush()
    end = struct.pack("<II", zlib.crc32(text) ^ checksum, (len(text) + size) % 2**32)
    return header + body + end[:trailer]


HALF = len(TEXT) // 2
DAMAGED: dict[str, tuple[bytes, str]] = {
    "wrong checksum": (member(TEXT, checksum=1), "bad-checksum"),
    "wrong length": (member(TEXT, size=1), "bad-checksum"),
    "no checksum": (member(TEXT, trailer=0), "no-checksum"),
    "checksum without length": (member(TEXT, trailer=4), "no-checksum"),
    "cut in the length": (member(TEXT, trailer=7), "no-checksum"),
    "text after it": (member(TEXT) + b"\nuploaded by nobody", "trailing-bytes"),
    "text after padding": (member(TEXT) + bytes(3_000_000) + b"x", "trailing-bytes"),
    "half a magic number": (member(TEXT) + b"\x1f", "trailing-bytes"),
    "a member of no known method": (member(TEXT) + b"\x1f\x8bjunkjunkjunk", "trailing-bytes"),
    "wrong checksum of the first member": (member(TEXT[:HALF], checksum=1) + member(TEXT[HALF:]), "bad-checksum"),
    "wrong length of the first member": (member(TEXT[:HALF], size=-1) + member(TEXT[HALF:]), "bad-checksum"),
    "wrong checksum of the last member": (member(TEXT[:HALF]) + member(TEXT[HALF:], checksum=4), "bad-checksum"),
    "wrong checksum of the header": (
        member(TEXT, header=b"\x1f\x8b\x08\x02\0\0\0\0\0\x03" + b"\xab\xcd"),
        "bad-checksum",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.parametrize("processes", [1, 2])
def test_what_could_be_unpacked_is_read_and_the_damage_is_said(tmp_path: Path, what: str, processes: int) -> None:
    data, code = DAMAGED[what]
    path = written(tmp_path, data, "trace.json.gz")
    if processes == 1:
        trace = read_trace(path, processes=1)
    else:
        found = read_in_two(path, Limits(max_bytes=1024**3), 100_000)
        assert found is not None
        trace = assemble(*found)
    assert trace.events == read_trace(written(tmp_path, TEXT)).events
    assert not trace.truncated
    assert {"bad-checksum", "no-checksum", "trailing-bytes", "truncated"} & {n.code for n in trace.notes} == {code}


@pytest.mark.parametrize(
    "data",
    [
        member(TEXT),
        member(TEXT) + bytes(700_000),
        member(TEXT[:HALF]) + member(TEXT[HALF:]) + member(b""),
        member(TEXT, header=b"\x1f\x8b\x08\x1c\0\0\0\0\0\x03" + b"\x04\0abcd" + b"name.json\0" + b"a comment\0"),
        gzip.compress(TEXT, 1),
    ],
    ids=["one member", "padded", "three members", "every field of a header", "the gzip module's"],
)
def test_a_sound_file_has_no_note_of_damage(tmp_path: Path, data: bytes) -> None:
    trace = read_trace(written(tmp_path, data, "trace.json.gz"))
    assert trace.damage == Damage.NONE
    assert trace.events == read_trace(written(tmp_path, TEXT)).events


def test_a_trace_of_one_chunk_is_not_lost_for_its_checksum(tmp_path: Path) -> None:
    small = b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{}}]}'
    trace = read_trace(written(tmp_path, member(small, checksum=1), "t.json.gz"))
    assert (trace.events, trace.damage) == (1, Damage.CHECKSUM)


def test_an_archive_with_a_wrong_checksum_is_read_and_said(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("rank0.json")
        entry.size = len(TEXT)
        tar.addfile(entry, io.BytesIO(TEXT))
    trace = read_trace(written(tmp_path, member(out.getvalue(), checksum=1), "t.tar.gz"))
    assert (trace.truncated, trace.damage) == (False, Damage.CHECKSUM)


def test_damage_of_a_companion_is_said_with_its_name(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, TEXT))
    observed = b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"name": "aten::add", "rf_id": 1}]}'
    execution = Companion(written(tmp_path, member(observed, checksum=1), "et.json.gz"), "et.json.gz")
    assert read_execution(execution.path).damage == Damage.CHECKSUM
    told, _ = observe(trace, execution, strict=True)
    companion = Companion(written(tmp_path, member(TEXT, trailer=3), "eager.json.gz"), "eager.json.gz")
    told = lend(told, companion, Limits(), strict=True)
    said = {note.code: note.message for note in told.notes}
    assert said["bad-checksum"].startswith("et.json.gz: ")
    assert said["no-checksum"].startswith("eager.json.gz: ")


# ------------------------------------------------------------------------------------------------- against zlib's word


AHEAD_BYTES = 100_000
"""What a decompressor that is faster than zlib may lose before a break."""


class Chunks:
    """Compressed bytes in reads of any length."""

    truncated = False

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    def read(self) -> bytes:
        return next(self._chunks, b"")


def unpacked(data: bytes, cuts: random.Random) -> tuple[bytes, bool]:
    """What Gunzip makes of a file that comes in pieces, and whether it says that something is wrong."""
    starts = sorted({0, *(cuts.randrange(len(data) + 1) for _ in range(cuts.randrange(6)))})
    chunks = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    chunks = [chunk for chunk in chunks if chunk]
    try:
        stream = Gunzip(Chunks(chunks))
        text = b"".join(iter(stream.read, b""))
    except TraceError:
        return b"", True
    return text, stream.truncated or stream.damage != Damage.NONE


def by_zlib(data: bytes) -> tuple[bytes, bool]:
    """The same by zlib, fed one byte at a time; a wrong checksum or length costs only the word that all is well."""
    text, wrong, at = b"", False, 0
    while at < len(data):
        if not data[at:].strip(b"\0"):
            break
        one = zlib.decompressobj(31)
        while not one.eof:
            if at == len(data):
                return text, True
            at += 1
            try:
                text += one.decompress(data[at - 1 : at])
            except zlib.error as error:
                wrong = True
                if "incorrect data check" in str(error):
                    at += 4
                    break
                if "incorrect length check" in str(error):
                    break
                return text, True
    return text, wrong


def damaged(dice: random.Random) -> bytes:
    """A file of one to three members with something done to it."""
    at = dice.randrange(len(TEXT) - 200_000)
    text = TEXT[at : at + dice.choice((0, 3, 700, 40_000, 150_000))]
    parts = [text[i::3] for i in range(3)] if dice.random() < 0.5 else [text]
    data = bytearray(b"".join(gzip.compress(part, dice.choice((0, 1, 6))) for part in parts))
    where = dice.choice((len(data) - 1, dice.randrange(len(data)), dice.randrange(max(1, len(data) - 12), len(data))))
    kind = dice.randrange(6)
    if kind == 0:
        data[where] ^= 1 << dice.randrange(8)
    elif kind == 1:
        del data[where:]
    elif kind == 2:
        del data[where : where + dice.randrange(1, 5)]
    elif kind == 3:
        data[where:where] = dice.randbytes(dice.randrange(1, 9))
    elif kind == 4:
        data += dice.choice((b"\0" * 9, b"\x1f", b"\x1f\x8b\x08", dice.randbytes(30)))
    return bytes(data)


@pytest.mark.parametrize("seed", range(150))
def test_gunzip_agrees_with_zlib_on_damaged_files(seed: int) -> None:
    dice = random.Random(seed)
    data = damaged(dice)
    if not data.startswith(b"\x1f\x8b"):  # taken for plain text, not for gzip
        pytest.skip("the damage hit the magic number")
    theirs, wrong = by_zlib(data)
    ours, said = unpacked(data, dice)
    assert said == wrong
    same = min(len(ours), len(theirs))
    assert ours[:same] == theirs[:same]
    assert len(ours) > len(theirs) - AHEAD_BYTES
    assert ours or len(theirs) <= 600  # a small file is not lost whole
