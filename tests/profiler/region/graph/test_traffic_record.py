"""The check of counted bytes against `ncu`: its CSV is read right, its regions run, and its record keeps its claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.hardware import find_device
from profiler.region.language.text import parse
from tools.gpu import check_traffic
from tools.records import traffic_record as tr

RECORDS = Path(__file__).resolve().parents[3] / "records"

RAW = """==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "spin_kernel" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sectors_srcunit_tex_op_read.sum",\
"lts__t_sectors_srcunit_tex_op_write.sum"
"","","","","","","","","","","","byte","byte","ns","sector","sector"
"0","4711","python3.12","127.0.0.1","at::cuda::<unnamed>::spin_kernel(long)","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0",\
"1,024","0","1,500","3","1"
"1","4711","python3.12","127.0.0.1","void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add\
<c10::BFloat16>, std::array<char *, 2>>(int, T2, T3)","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","2,147,483,648",\
"1,000,000,000","812,000","67,108,864","33,554,432"
"2","4711","python3.12","127.0.0.1","at::cuda::<unnamed>::spin_kernel(long)","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0",\
"0","0","1,500","3","1"
"3","4711","python3.12","127.0.0.1","void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)","1","7",\
"(32, 16, 1)","(264, 1, 1)","0","9.0","1,073,741,824","50,331,648","300,000","33,554,432","2"
==PROF== Disconnected from process 4711
"""
HEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device"'
ROW = '"0","1","p","h","triton_poi_fused_add_gelu_0","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","Command line"'
DETAILS = f"""the program's own line
{HEAD},"CC","Section Name","Metric Name","Metric Unit","Metric Value"
{ROW},"dram__bytes_read.sum","Mbyte","2.5"
{ROW},"dram__bytes_write.sum","Kbyte","640"
{ROW},"gpu__time_duration.sum","usecond","41.28"
"""


def test_raw_page_has_one_row_a_kernel_and_its_units_below_the_header() -> None:
    kernels = tr.parse_csv(RAW)
    assert [k.name for k in kernels] == [
        "spin_kernel", "vectorized_elementwise_kernel", "spin_kernel", "reduce_kernel",
    ]  # fmt: skip
    add = kernels[1]
    assert (add.bytes_read, add.bytes_written, add.time_us) == (2147483648, 1000000000, 812.0)
    assert (add.l2_bytes_read, add.l2_bytes_written) == (67108864 * 32, 33554432 * 32)


def test_details_page_has_one_row_a_metric_and_units_with_prefixes() -> None:
    assert tr.parse_csv(DETAILS) == [tr.Kernel("triton_poi_fused_add_gelu_0", 2_500_000, 640_000, 41.28)]


@pytest.mark.parametrize(
    ("text", "said"),
    [("==ERROR== ERR_NVGPUCTRPERM", "ERR_NVGPUCTRPERM"), (RAW.replace('"2,147,483,648"', '"n/a"'), "n/a"),
     ("\n".join(DETAILS.splitlines()[:-1]), "gpu__time_duration")],
)  # fmt: skip
def test_values_that_ncu_did_not_give_are_errors(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tr.parse_csv(text)


def test_markers_split_a_profile_into_runs() -> None:
    kernels = tr.parse_csv(RAW)
    (run,) = tr.split_runs(kernels, [("swiglu", "eager")])
    assert [k.name for k in run.kernels] == ["vectorized_elementwise_kernel"]
    assert run.flushed == 50331648
    with pytest.raises(ValueError, match="2 segments for 2 runs"):
        tr.split_runs(kernels, [("swiglu", "eager"), ("swiglu", "compile")])
    with pytest.raises(ValueError, match="before the first marker"):
        tr.split_runs(kernels[1:], [("swiglu", "eager")])


def test_comparison_survives_its_json_and_is_counted_anew() -> None:
    name = "swiglu"
    text = check_traffic.text_of(name)
    whole, parts, floor, _ = check_traffic.count_traffic(text, "eager")
    n = 65536 * 16384 * 2
    assert (whole.bytes_read, whole.bytes_written) == (3 * n, 2 * n)  # silu: 1 + 1, mul: 2 + 1
    kernels = tuple(tr.Kernel(f"k{i}", p.bytes_read, p.bytes_written - 40 * 10**6, 900.0) for i, p in enumerate(parts))
    warm = tr.Run(name, "eager", kernels, flushed=50 * 10**6)
    entry = tr.to_json(tr.compare(tr.Run(name, "eager", kernels), text, whole, parts, warm, floor))
    record = {"device": "NVIDIA H200", "regions": [entry]}
    assert check_traffic.recount(json.loads(json.dumps(record)))["regions"] == [entry]
    assert entry["agrees"]
    assert entry["ratio"] == pytest.approx(1 - 80e6 / (5 * n), abs=1e-4)
    assert "swiglu" in tr.table([entry])
    short = tr.to_json(tr.compare(tr.Run(name, "eager", kernels[:1]), text, whole, parts, None, floor))
    assert not short["agrees"]
    assert "NOT EXPLAINED" in tr.table([short])


@pytest.mark.parametrize("name", check_traffic.REGIONS)
def test_every_region_is_beyond_l2_and_its_small_version_runs(name: str, tmp_path: Path) -> None:
    _, _, floor, fewest = check_traffic.count_traffic(check_traffic.text_of(name), "eager")
    assert fewest > 20 * 60 * 2**20
    assert floor > 0
    order = tmp_path / "order"
    if name != "embedding_scale":  # its table has a million rows at every size
        check_traffic.child(order, [name], device="cpu", small=(64, 32))
        assert order.read_text(encoding="utf-8") == f'["{name}", "eager"]\n'


def test_embedding_of_a_small_table_runs() -> None:
    region = parse(check_traffic.text_of("embedding_scale", 64, 32).replace("1000000", "100"))
    from kernels import baselines
    from kernels.measure.candidate import inputs

    given = inputs.input_set(region, {}, "cpu", seed=0)
    (out,) = baselines.eager(region, None, "cpu")(*given)
    assert torch.equal(out, given[0][given[1]] * 2.0)


def test_command_asks_for_what_the_record_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_traffic, "ncu", lambda: "ncu")
    found = check_traffic.command("all", tr.METRICS, tmp_path / "log", tmp_path / "order", ["swiglu"])
    options = dict(zip(found[2::2], found[3::2], strict=False))
    assert options["--page"] == "raw"
    assert options["--clock-control"] == "none"
    assert options["--profile-from-start"] == "off"
    assert found[-4:] == [found[-4], "--child", str(tmp_path / "order"), "swiglu"]


RECORDED = sorted(RECORDS.glob("traffic-*.json")) if RECORDS.is_dir() else []


@pytest.fixture(params=[p.name for p in RECORDED] or ["traffic-h200.json"])
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    path = RECORDS / request.param
    if not path.is_file():
        pytest.skip("not recorded yet: run tools/gpu/check_traffic.py where there are a GPU and ncu")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_recorded_bytes_agree_with_what_is_counted_today(record: dict[str, Any]) -> None:
    today = {(r["region"], r["mode"]): r for r in check_traffic.recount(record)["regions"]}
    wrong = {key: r["ratio"] for key, r in today.items() if not r["agrees"] and not r["explanation"]}
    assert not wrong
    assert len({region for region, _ in today}) >= 10
    assert sum(r["agrees"] for r in today.values()) >= 0.7 * len(today)


def test_recorded_kernels_took_no_less_than_the_floor(record: dict[str, Any]) -> None:
    quick = {(r["region"], r["mode"]): r["time_us"] / r["floor_us"] for r in check_traffic.recount(record)["regions"]}
    assert not {k: v for k, v in quick.items() if v < 0.95}


def test_record_names_its_device_and_software(record: dict[str, Any]) -> None:
    known = find_device(record["device"])
    assert known is not None
    assert (record["l2_bytes"], record["processors"]) == (known.l2_bytes, known.processors)
    assert {"torch", "triton", "python", "ncu"} <= set(record["software"])
    assert all(sum(k["bytes_read"] for k in r["kernels"]) == r["measured"]["bytes_read"] for r in record["regions"])
