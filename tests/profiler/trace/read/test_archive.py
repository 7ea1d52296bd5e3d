"""A trace inside a tar archive is read as if it lay outside it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from profiler.trace import TraceError, read_trace
from tests.profiler.trace.files import SMALL, TRACES, plain, real, written


def archive(files: dict[str, bytes], kind: int = tarfile.PAX_FORMAT, packed: bool = True) -> bytes:
    """A tar archive of these files, as Python's own tarfile writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if packed else "w", format=kind) as tar:
        folder = tarfile.TarInfo("traces")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("packed", [True, False])
def test_one_trace_in_an_archive_reads_as_the_file_itself(tmp_path: Path, kind: int, packed: bool) -> None:
    files = {
        "traces/._rank0.json": b"\0\5\x16\7" + bytes(700),
        "traces/README.txt": b"about",
        "traces/rank0.json": plain(SMALL),
        "traces/notes.md": b"after",
    }
    trace = read_trace(written(tmp_path, archive(files, kind, packed), "t.tar.gz"))
    whole = real(SMALL)
    assert (trace.events, trace.dropped, trace.truncated) == (whole.events, 0, False)
    assert trace.kernels.op.tolist() == whole.kernels.op.tolist()
    assert trace.device == whole.device


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_name_longer_than_a_header_holds_is_no_hindrance(tmp_path: Path, kind: int) -> None:
    name = "traces/" + "a" * 150 + ".pt.trace.json"
    trace = read_trace(written(tmp_path, archive({name: plain(SMALL)}, kind)))
    assert trace.events == real(SMALL).events


def test_a_packed_trace_in_an_archive_is_unpacked(tmp_path: Path) -> None:
    packed = (TRACES / SMALL).read_bytes()
    for whole in (archive({"a.json.gz": packed}), archive({"a.json.gz": packed}, packed=False)):
        assert read_trace(written(tmp_path, whole)).events == real(SMALL).events


def test_several_traces_are_refused_by_name(tmp_path: Path) -> None:
    files = {"rank0.json": plain(SMALL), "rank1.json": plain(SMALL)}
    with pytest.raises(TraceError, match=r"rank0\.json, rank1\.json") as refused:
        read_trace(written(tmp_path, archive(files)))
    assert refused.value.code == "trace-not-a-trace"


def test_an_archive_without_a_trace_is_refused(tmp_path: Path) -> None:
    for files in ({}, {"a.txt": b"{}"}):
        with pytest.raises(TraceError, match="holds no") as refused:
            read_trace(written(tmp_path, archive(files)))
        assert refused.value.code == "trace-not-a-trace"


def test_gzip_in_gzip_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, gzip.compress(gzip.compress(plain(SMALL)))))
    assert refused.value.code == "trace-not-json"


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_an_archive_cut_short_reads_to_its_last_whole_event_and_is_flagged(tmp_path: Path, share: float) -> None:
    for packed in (True, False):
        data = archive({"a.json": plain(SMALL)}, packed=packed)
        trace = read_trace(written(tmp_path, data[: int(len(data) * share)]))
        assert trace.truncated
        assert 0 < trace.events < real(SMALL).events
        assert trace.dropped == 0
