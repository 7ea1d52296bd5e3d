"""Every way in which a file may be packed gives the same figures, whatever it is called."""

from __future__ import annotations

import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.read import frames
from tests.profiler.trace.files import SMALL, loaded, plain, real, written
from tests.profiler.trace.nsys_export import export
from tests.profiler.trace.read.formats.test_nsys import kernel_times
from tests.profiler.trace.read.formats.test_rocprofv3 import SMALL as SMALL_RUN
from tests.profiler.trace.read.formats.test_unzstd import zstd
from tests.profiler.trace.read.test_archive import archive
from tests.profiler.trace.read.test_members import zipped
from tests.profiler.trace.rocprofv3_file import recorded

SKIPPABLE = b"\x50\x2a\x4d\x18\4\0\0\0size"
"""A frame of no content (RFC 8878), which pzstd writes before each other."""
PACKINGS: dict[str, Callable[[str, bytes], bytes]] = {
    "plain": lambda name, data: data,
    "gzip": lambda name, data: gzip.compress(data, 1),
    "zstd": lambda name, data: zstd.compress(data),
    "zip": lambda name, data: zipped({"README.md": b"about", f"run/{name}": data, "config.json": b'{"a": 1}'}),
    "stored zip": lambda name, data: zipped({name: data}, zipfile.ZIP_STORED),
    "gzip in a zip": lambda name, data: zipped({name + ".gz": gzip.compress(data, 1)}),
    "zstd in a zip": lambda name, data: zipped({name + ".zst": zstd.compress(data)}),
    "pzstd": lambda name, data: SKIPPABLE + zstd.compress(data),
    "pzstd in a zip": lambda name, data: zipped({name + ".zst": SKIPPABLE + zstd.compress(data)}),
    "tar.zst of pzstd": lambda name, data: SKIPPABLE + zstd.compress(archive({name: data}, packed=False)),
    "pzstd in a tar": lambda name, data: archive({name + ".zst": SKIPPABLE + zstd.compress(data)}, packed=False),
    "tar": lambda name, data: archive({name: data}, packed=False),
    "tar.gz": lambda name, data: archive({name: data}),
    "tar.zst": lambda name, data: zstd.compress(archive({name: data}, packed=False)),
    "zstd in a tar": lambda name, data: archive({name + ".zst": zstd.compress(data)}, packed=False),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One run in each kind of file."""
    path = export(loaded(SMALL), tmp_path_factory.mktemp("kinds") / "run.sqlite")
    return {
        "trace.json": plain(SMALL),
        "run.sqlite": path.read_bytes(),
        "results.json": json.dumps(recorded(loaded(SMALL))).encode(),
    }


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", ["trace.json", "run.sqlite", "results.json"])
def test_packed_in_any_way_a_run_has_the_same_figures(
    name: str, packing: str, kinds: dict[str, bytes], tmp_path: Path
) -> None:
    trace = read_trace(written(tmp_path, PACKINGS[packing](name, kinds[name]), "no name that tells"))
    assert kernel_times(trace) == kernel_times(real(SMALL))
    assert not trace.truncated
    assert list(tmp_path.iterdir()) == [tmp_path / "no name that tells"], "nothing is written beside a file"


def test_stacks_are_read_from_a_zip_as_from_the_file(tmp_path: Path) -> None:
    name = "handrolled_blocks_bf16_eager_stack.json.gz"
    whole = real(name)
    path = written(tmp_path, zipped({"trace.json": plain(name)}))
    at = [(0, float(start)) for start in whole.ops.start_us[whole.ops.thread == 0][:50]]
    assert [f.stack for f in frames.open_frames(path, whole, at)] == [
        f.stack for f in frames.open_frames(written(tmp_path, plain(name), "plain.json"), whole, at)
    ]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (zipped(dict.fromkeys(("a.json", "b.json"), plain(SMALL))), "trace-not-a-trace", "several traces: a.json, b"),
        (zipped({"a.txt": plain(SMALL)}), "trace-not-a-trace", "no trace"),
        (zipped({"a.json": plain(SMALL)})[:-30], "trace-truncated", "cannot be unpacked"),
        (zipped({"a.json": plain(SMALL)}, zipfile.ZIP_BZIP2), "trace-not-a-trace", "bzip2"),
        (zipped({"a.json": zipped({"a.json": plain(SMALL)})}), "trace-not-a-trace", "no trace"),
        (zstd.compress(zstd.compress(plain(SMALL))), "trace-not-json", "zstd-compressed twice"),
        (gzip.compress(zipped({"a.json": plain(SMALL)})), "trace-not-json", "zip archive inside"),
        (lzma.compress(plain(SMALL)), "trace-not-json", "xz-compressed"),
        (zipped({"a.json.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 99}), "trace-bad-zstd", "nothing in it"),
    ],
)  # fmt: skip
def test_what_cannot_be_unpacked_to_one_trace_is_refused_in_words(
    data: bytes, code: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, data))
    assert refused.value.code == code
    assert words in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize("packing", ["gzip", "zstd", "zip", "tar.gz", "tar.zst"])
def test_a_packed_export_has_the_limit_of_unpacked_bytes(packing: str, kinds: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path, PACKINGS[packing]("run.sqlite", kinds["run.sqlite"]))
    with pytest.raises(TraceError) as refused:
        read_trace(path, Limits(max_bytes=len(kinds["run.sqlite"]) - 1))
    assert refused.value.code == "trace-too-large"
    assert read_trace(path, Limits(max_bytes=3 * len(kinds["run.sqlite"]))).kernel_time_us > 0


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_packed_export_that_is_cut_is_refused_in_words(packing: str, kinds: dict[str, bytes], tmp_path: Path) -> None:
    data = PACKINGS[packing]("run.sqlite", kinds["run.sqlite"])
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, data[:-9]))
    assert refused.value.code == "trace-bad-sqlite"
    assert "cannot be unpacked whole" in refused.value.message


def test_on_read_is_told_the_end(tmp_path: Path) -> None:
    told: list[float] = []
    read_trace(written(tmp_path, json.dumps(recorded(SMALL_RUN))), on_read=told.append)
    assert told[-1] == 1.0
