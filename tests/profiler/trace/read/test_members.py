"""The traces inside an archive: what Python's own writers put there, within limits, and no path of theirs used."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.trace import TraceError, read_trace
from profiler.trace.read.limits import CHUNK_BYTES, Limits
from profiler.trace.read.members import MAX_TRACES, is_archive, is_zip, traces_in
from tests.profiler.trace.files import SMALL, TRACES, plain, written
from tests.profiler.trace.read.test_archive import archive

RANK0, RANK1 = (b'{"traceEvents": [%d]}' % rank * 100 for rank in (0, 1))
RANKS = {"job/rank0.json": RANK0, "job/rank1.json.gz": gzip.compress(RANK1)}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return out.getvalue()


def unpacked(path: Path, limits: Limits = Limits()) -> dict[str, bytes]:  # noqa: B008 - frozen
    return {name: gzip.decompress(b"".join(content)) for name, content in traces_in(path, limits)}


@pytest.mark.parametrize(
    "data",
    [archive(RANKS), archive(RANKS, packed=False), zipped(RANKS), zipped(RANKS, zipfile.ZIP_STORED)],
    ids=["tar.gz", "tar", "zip", "stored zip"],
)
def test_every_trace_comes_out_as_it_went_in(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    assert is_archive(path)
    assert unpacked(path) == {"rank0.json": RANK0, "rank1.json.gz": RANK1}


def test_what_is_no_trace_is_left_out_and_no_name_is_a_path(tmp_path: Path) -> None:
    files = {
        "../../etc/rank0.json": b"[]", "__MACOSX/._rank0.json": b"\0\5\x16\7", "rank0.et.json": b"[]",
        "README.md": b"x", "C:\\traces\\rank1.json": b"[]",
    }  # fmt: skip
    for data in (archive(files), zipped(files)):
        assert sorted(unpacked(written(tmp_path, data))) == ["rank0.json", "rank1.json"]


@pytest.mark.parametrize("name", ["plain", "gzip", "text"])
def test_a_trace_is_no_archive(tmp_path: Path, name: str) -> None:
    data = {"plain": plain(SMALL), "gzip": (TRACES / SMALL).read_bytes(), "text": b"x: f32[8]\nreturn x\n"}[name]
    assert not is_archive(written(tmp_path, data))


@pytest.mark.parametrize("write", [archive, zipped], ids=["tar.gz", "zip"])
def test_an_archive_that_breaks_off_says_how_many_it_had(tmp_path: Path, write: object) -> None:
    noise = random.Random(0).randbytes
    data = write({f"rank{i}.json": b"[" + noise(200_000) for i in range(3)})  # type: ignore[operator]
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, data[: len(data) // 2]))
    assert refused.value.code == "trace-truncated"
    # a zip's list of members stands at its end
    assert ("first trace" if write is archive else "cannot be unpacked:") in refused.value.message


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_has(tmp_path: Path) -> None:
    files = {f"rank{i}.json": b"[" + b" " * 1_000_000 for i in range(4)}
    for data in (archive(files), zipped(files)):
        taken: list[int] = []

        def take(data: bytes = data, taken: list[int] = taken) -> None:
            for _, content in traces_in(written(tmp_path, data), Limits(max_bytes=2_000_000)):
                taken.append(len(b"".join(content)))

        with pytest.raises(TraceError) as refused:
            take()
        assert refused.value.code == "trace-too-large"
        assert len(taken) <= 2


def test_what_is_skipped_of_a_tape_is_counted_too(tmp_path: Path) -> None:
    data = archive({"core.dump": bytes(3_000_000), "rank0.json": b"[]"})
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, data), Limits(max_bytes=2_000_000))
    assert refused.value.code == "trace-too-large"


def test_more_traces_than_a_job_has_ranks_here_are_refused(tmp_path: Path) -> None:
    files = {f"rank{i}.json": b"[]" for i in range(MAX_TRACES + 1)}
    with pytest.raises(TraceError, match=str(MAX_TRACES)):
        unpacked(written(tmp_path, zipped(files)))


def test_what_is_called_like_a_trace_and_begins_like_none_is_a_stray(tmp_path: Path) -> None:
    files = {
        "config.json": b'{"lr": 0.1}', "empty.json": b"", "packed.json.gz": gzip.compress(b'{"steps": 3}'),
        "rank0.json": b' \n{"schemaVersion": 1, "deviceProperties": [' + b'{"id": 0},' * 100_000 + b"",
        "rank1.json.gz": gzip.compress(b"\n [1]"), "damaged.json.gz": b"\x1f\x8b\x08\0" + b"\xff" * 60,
    }  # fmt: skip
    for data in (archive(files), zipped(files)):
        strays: list[str] = []
        taken = [name for name, content in traces_in(written(tmp_path, data), Limits(), strays) if b"".join(content)]
        assert taken == ["rank0.json", "rank1.json.gz", "damaged.json.gz"]
        assert strays == ["config.json", "empty.json", "packed.json.gz"]


@pytest.mark.parametrize(("packing", "said"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "LZMA")])
def test_a_packing_that_is_unpacked_whole_is_refused_by_name_before_it_is(
    tmp_path: Path, packing: int, said: str
) -> None:
    path = written(tmp_path, zipped({"rank0.json": b"[" + b" " * 50_000_000}, packing))
    most, refused = peak(lambda: unpacked(path))
    assert isinstance(refused, TraceError)
    assert said in refused.message
    assert most < 5_000_000


def peak(read: Callable[[], object]) -> tuple[int, Exception | None]:
    """(bytes of Python's memory at most, what was raised) of a call."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1], None
    except Exception as error:
        return tracemalloc.get_traced_memory()[1], error
    finally:
        tracemalloc.stop()


def header_of(kind: bytes, text: bytes) -> bytes:
    """A member of a type that tells about the next one, with its text, as blocks of a tar."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(text)
    return info.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % tarfile.BLOCKSIZE)


KINDS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
REST = archive({"rank0.json": b"[]"}, packed=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_name_of_many_megabytes_is_refused_before_it_is_read(tmp_path: Path, kind: bytes, packed: bool) -> None:
    data = header_of(kind, b"a" * 50_000_000) + REST
    path = written(tmp_path, gzip.compress(data, 1) if packed else data)
    del data
    most, refused = peak(lambda: unpacked(path))
    assert isinstance(refused, TraceError)
    assert refused.code == "trace-too-large"
    assert most < 5_000_000


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_many_large_headers_are_not_kept(tmp_path: Path, kind: bytes) -> None:
    value = b"v" * 999_000
    one = header_of(kind, b"%d comment=%b\n" % (len(value) + 17 - 1, value))
    path = written(tmp_path, gzip.compress(one * 30 + REST, 1))
    most, refused = peak(lambda: unpacked(path))
    assert refused is None
    assert most < 12_000_000


@pytest.mark.parametrize("text", [b"1" * 1_000_000, b"2 " * 500_000 + b"=", b"18 hdrcharset=BINARY\n", b"0 a=\n"])
def test_a_pax_header_that_is_none_is_damage_and_costs_no_time(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, header_of(tarfile.XHDTYPE, text) + REST))
    assert refused.value.code == "trace-truncated"


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_of_a_tape_are_those_that_tarfile_reads(tmp_path: Path, kind: int) -> None:
    """Long names, sizes around a block's, links, folders, and names that are not ASCII."""
    dice = random.Random(kind)
    deep = "d" * 90 + "/"
    files = {f"{deep}{i}-ä.json": b"[" + dice.randbytes(size) for i, size in enumerate((0, 510, 511, 512, 5000))}
    if kind != tarfile.USTAR_FORMAT:
        files |= {f"{'e' * 150}{i}.json": b"[" + dice.randbytes(i) for i in range(3)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
            link = tarfile.TarInfo("link.json")
            link.type, link.linkname = tarfile.SYMTYPE, "l" * (120 if kind != tarfile.USTAR_FORMAT else 20)
            tar.addfile(link)
    path = written(tmp_path, out.getvalue())
    with tarfile.open(path) as tar:
        read = [(m.name.rsplit("/", 1)[-1], m) for m in tar if m.isreg()]
        expected = [(name, tar.extractfile(m).read()) for name, m in read]  # type: ignore[union-attr]
    assert len(expected) == len(files)
    assert list(unpacked(path).items()) == expected


SMALL_ARCHIVES = {
    "gzip": gzip.compress(b'{"traceEvents": []}'),
    "tar.gz": archive(RANKS),
    "gnu tar": archive({"l" * 120 + ".json": RANK0, "rank1.json": RANK1}, tarfile.GNU_FORMAT, packed=False),
    "pax tar": archive({"l" * 120 + ".json": RANK0, "rank1.json": RANK1}, packed=False),
    "zip": zipped(RANKS),
    "stored zip": zipped(RANKS, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("kind", SMALL_ARCHIVES)
def test_a_damaged_archive_is_a_trace_error_and_nothing_else(tmp_path: Path, kind: str) -> None:
    dice = random.Random(kind)
    whole = SMALL_ARCHIVES[kind]
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 5))):
            data[dice.randrange(len(data))] = dice.choice((0, 0xFF, dice.randrange(256)))
        path = written(tmp_path, bytes(data[: dice.choice((len(data), len(data), dice.randrange(len(data))))]))
        if is_archive(path):
            try:
                for _, content in traces_in(path, Limits(max_bytes=100_000_000)):
                    b"".join(content)
            except TraceError as error:
                assert error.code in {"trace-truncated", "trace-too-large", "trace-not-a-trace"}


def test_names_in_a_zip_that_are_no_names_are_no_fault_of_ours(tmp_path: Path) -> None:
    whole = zipped({"rank0.json": b"[]", "rank1.json": b"[]"}, zipfile.ZIP_STORED)
    nul = whole.replace(b"rank0", b"\0ank0")
    assert sorted(unpacked(written(tmp_path, nul))) == ["rank1.json"]
    place = whole.index(b"PK\x01\x02")
    flags = struct.pack("<H", 0x800)
    broken = whole[: place + 8] + flags + whole[place + 10 :].replace(b"rank0", b"\xff\xfe\xfd\xfck", 1)
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, broken))
    assert refused.value.code == "trace-truncated"


@pytest.mark.parametrize("packed", [False, True])
def test_files_that_are_called_like_traces_cost_no_more_than_those_that_may_be(tmp_path: Path, packed: bool) -> None:
    """One begins as JSON and goes on in blanks: 300 MB in all, of which little is unpacked to see that none is one."""
    blanks = b"{" + b" " * CHUNK_BYTES
    path = written(tmp_path, zipped(dict.fromkeys(map("{}.json".format, range(600)), blanks)))
    if packed:
        path = written(tmp_path, zipped(dict.fromkeys(map("{}.json".format, range(600)), gzip.compress(blanks))))
    for read in (read_trace, unpacked):
        before_s = time.process_time()
        with pytest.raises(TraceError) as refused:
            read(path)
        assert refused.value.code == "trace-too-large"
        assert time.process_time() - before_s < 2.0


def test_a_trace_among_a_thousand_small_files_is_read(tmp_path: Path) -> None:
    small = dict.fromkeys(map("config{}.json".format, range(1000)), b'{"a": 1}')
    path = written(tmp_path, zipped({**small, "trace.json": plain(SMALL)}))
    assert read_trace(path).kernel_time_us > 0
    assert list(unpacked(path)) == ["trace.json"]


def test_an_encrypted_zip_and_an_empty_one_are_called_so(tmp_path: Path) -> None:
    encrypted = bytearray(zipped({"a.json": plain(SMALL)}))
    encrypted[6] |= 1
    encrypted[encrypted.rfind(b"PK\1\2") + 8] |= 1
    path = written(tmp_path, bytes(encrypted))
    for read in (read_trace, unpacked):
        with pytest.raises(TraceError) as refused:
            read(path)
        assert "encrypted" in refused.value.message
        assert "without a password" in refused.value.remedy
    path = written(tmp_path, zipped({}))
    assert is_zip(path)
    assert unpacked(path) == {}
    with pytest.raises(TraceError, match="empty zip"):
        read_trace(path)
