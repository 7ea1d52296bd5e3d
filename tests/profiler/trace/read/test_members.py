"""The traces inside an archive: what Python's own writers put there, within limits, and no path of theirs used."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from pathlib import Path

import pytest

from profiler.trace import TraceError
from profiler.trace.read.limits import Limits
from profiler.trace.read.members import MAX_TRACES, is_archive, traces_in
from tests.profiler.trace.files import SMALL, TRACES, plain, written
from tests.profiler.trace.read.test_archive import archive

RANKS = {"job/rank0.json": b'{"rank": 0}' * 100, "job/rank1.json.gz": gzip.compress(b'{"rank": 1}' * 100)}


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
    assert unpacked(path) == {"rank0.json": b'{"rank": 0}' * 100, "rank1.json.gz": b'{"rank": 1}' * 100}


def test_what_is_no_trace_is_left_out_and_no_name_is_a_path(tmp_path: Path) -> None:
    files = {
        "../../etc/rank0.json": b"{}", "__MACOSX/._rank0.json": b"\0\5\x16\7", "rank0.et.json": b"{}",
        "README.md": b"x", "C:\\traces\\rank1.json": b"{}",
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
    data = write({f"rank{i}.json": noise(200_000) for i in range(3)})  # type: ignore[operator]
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, data[: len(data) // 2]))
    assert refused.value.code == "trace-truncated"
    assert "first trace" in refused.value.message


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_has(tmp_path: Path) -> None:
    files = {f"rank{i}.json": b" " * 1_000_000 for i in range(4)}
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
    data = archive({"core.dump": bytes(3_000_000), "rank0.json": b"{}"})
    with pytest.raises(TraceError) as refused:
        unpacked(written(tmp_path, data), Limits(max_bytes=2_000_000))
    assert refused.value.code == "trace-too-large"


def test_more_traces_than_a_job_has_ranks_here_are_refused(tmp_path: Path) -> None:
    files = {f"rank{i}.json": b"{}" for i in range(MAX_TRACES + 1)}
    with pytest.raises(TraceError, match=str(MAX_TRACES)):
        unpacked(written(tmp_path, zipped(files)))
