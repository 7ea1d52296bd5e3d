"""Hand-counted cases: bytes, launches, savings with their counting, the floor, and what an L2 keeps from memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from profiler.hardware import Device, find_device
from profiler.region.graph.cost import cost
from profiler.region.graph.cost_model import (
    L2_SHARE,
    Cost,
    Step,
    bound,
    dram,
    floor_counting,
    floor_us,
)
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse
from tests.profiler.region import texts
from tests.profiler.region.peers import PEERS


def counted(text: str) -> Cost:
    return cost(lower(parse(text)))


N = 8192 * 16384 * 2
BIAS = 16384 * 2


def test_example_counts_seven_three_and_two_n() -> None:
    savings = {s.name: s for s in counted(texts.EXAMPLE).savings}
    alone, epilogue = savings["tail-fused"], savings["tail-epilogue"]
    assert alone.bytes_before == 7 * N + BIAS
    assert alone.bytes_after == 3 * N + BIAS
    assert epilogue.bytes_before == 7 * N + BIAS
    assert epilogue.bytes_after == 2 * N + BIAS
    assert alone.share_saved == pytest.approx(4 / 7, abs=1e-4)
    assert epilogue.share_saved == pytest.approx(5 / 7, abs=1e-4)
    assert (alone.launches_before, alone.launches_after, epilogue.launches_after) == (4, 2, 1)
    assert "not counted" in alone.counting
    assert "registers" in epilogue.counting


def test_example_operations_each_alone() -> None:
    operations = {o.label: o for o in counted(texts.EXAMPLE).operations if o.launches}
    x, w = 8192 * 4096 * 2, 4096 * 16384 * 2
    assert (operations["matmul"].bytes_read, operations["matmul"].bytes_written) == (x + w, N)
    assert (operations["add"].bytes_read, operations["add"].bytes_written) == (N + BIAS, N)
    assert (operations["gelu"].bytes_read, operations["gelu"].bytes_written) == (N, N)
    assert (operations["mul"].bytes_read, operations["mul"].bytes_written) == (2 * N, N)
    assert operations["matmul"].flops == 2 * 8192 * 4096 * 16384


def test_bool_mask_saves_less() -> None:
    text = texts.EXAMPLE.replace("mask: bf16", "mask: bool")
    saving = next(s for s in counted(text).savings if s.name == "tail-epilogue")
    assert saving.bytes_before == 6.5 * N + BIAS
    assert saving.bytes_after == 1.5 * N + BIAS


def test_rms_norm_by_hand_fuses_to_one_read_and_one_write() -> None:
    region_cost = counted(texts.RMS_NORM)
    x = 4 * 2048 * 2048 * 2
    assert region_cost.fused.launches == 1
    assert region_cost.fused.bytes_moved == region_cost.ideal.bytes_moved == 2 * x + 2048 * 2
    # to 1+2, pow 2+2, mean 2, mul 1+1, mul 1+1 of x; per row: mean 4, add 8, rsqrt 8, to 6, mul 2; and the weight
    assert region_cost.unfused.bytes_moved == 13 * x + 4 * 2048 * 28 + 2048 * 2
    assert region_cost.unfused.launches == 8


def test_views_cost_nothing_and_broadcast_reads_once() -> None:
    region_cost = counted("x: f32[4, 1].strides(1, 1)\ny = x.expand(4, 1000).transpose(0, 1)\nreturn y + 1.0\n")
    add = next(o for o in region_cost.operations if o.label == "add")
    assert add.bytes_read == 4 * 4
    assert add.bytes_written == 4000 * 4
    assert sum(o.launches for o in region_cost.operations) == 1


def test_in_place_mutation_is_a_write() -> None:
    region_cost = counted("x: f32[1000]\ny: f32[1000]\nz = x.add_(y)\nreturn z\n")
    assert region_cost.unfused.bytes_read == 8000
    assert region_cost.unfused.bytes_written == 4000
    assert region_cost.ideal.bytes_moved == 12000


def test_gather_counts_the_rows_picked_not_the_table() -> None:
    region_cost = counted("w: bf16[50000, 1024]\ni: i64[8].below(50000)\nreturn embedding(i, w) * 2.0\n")
    assert region_cost.ideal.bytes_read == 8 * 8 + 8 * 1024 * 2
    assert region_cost.kernels[0].bytes_moved == 8 * 8 + 2 * 8 * 1024 * 2


def test_two_axes_cannot_share_a_kernel() -> None:
    region_cost = counted("x: bf16[512, 512]\nreturn x.float().sum(0), x.float().sum(1)\n")
    assert region_cost.fused.launches == 3  # Inductor splits the sum over rows
    assert region_cost.ideal.bytes_moved == 512 * 512 * 2 + 2 * 512 * 4


@pytest.mark.parametrize(
    ("text", "launches"),
    [(texts.EXAMPLE, 2), (texts.LAYER_NORM, 1), (texts.SWIGLU, 1), (texts.ROPE, 1), (texts.ADAM, 1),
     (texts.ATTENTION, 3), (texts.GELU_TANH, 1)],
)  # fmt: skip
def test_launches_after_fusion(text: str, launches: int) -> None:
    assert counted(text).fused.launches == launches


@pytest.mark.parametrize("text", [texts.EXAMPLE, texts.ATTENTION, texts.CAUSAL])
def test_matrix_flops_equal_torchs_counter(text: str) -> None:
    graph = lower(parse(text))
    with graph.program.mode, FlopCounterMode(display=False) as counter, torch.no_grad():
        graph.program.module(*graph.program.inputs)
    assert cost(graph).gemm_flops == counter.get_total_flops()


def test_floor_is_the_larger_of_bytes_and_flops() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    example, norm = counted(texts.EXAMPLE), counted(texts.RMS_NORM)
    assert bound(example, device) == "compute"
    assert floor_us(example, device) == pytest.approx(1e6 * 2 * 8192 * 4096 * 16384 / 790e12, rel=1e-6)
    assert bound(norm, device) == "memory"
    assert floor_us(norm, device) == pytest.approx(1e6 * norm.ideal.bytes_moved / 4.3e12, rel=1e-6)


def test_depthwise_backward_counts_its_own_channels_only() -> None:
    text = (
        "x: bf16[64, 96, 56, 56].requires_grad.channels_last\nw: bf16[96, 1, 7, 7].requires_grad\n"
        "return conv2d(x, w, groups=96, padding=3)\n"
    )
    one = 2 * 64 * 96 * 56 * 56 * 49
    assert counted(text).gemm_flops == 3 * one


def test_f32_convolution_runs_in_tf32_and_a_product_does_not() -> None:
    device = find_device("NVIDIA H200")
    assert device is not None
    conv = counted("x: f32[8, 64, 56, 56]\nw: f32[64, 64, 3, 3]\nreturn conv2d(x, w)\n")
    product = counted("x: f32[512, 512]\nreturn x @ x\n")
    assert (conv.matmul_dtype, product.matmul_dtype) == ("tf32", "f32")
    assert device.matmul_rate("tf32") > device.matmul_rate("f32")


def test_sdpa_in_training_is_costed_as_attention() -> None:
    qkv = "".join(f"{n}: bf16[4, 16, 2048, 128].requires_grad\n" for n in "qkv")
    region_cost = counted(qkv + "return scaled_dot_product_attention(q, k, v)\n")
    forward = 4 * 4 * 16 * 2048 * 2048 * 128
    assert region_cost.gemm_flops == forward + forward * 5 // 2
    assert [k.kind for k in region_cost.kernels] == ["attention", "attention"]


REGIONS = Path(__file__).resolve().parents[3] / "regions"


@pytest.fixture
def h200() -> Device:
    device = find_device("NVIDIA H200")
    assert device is not None
    return device


def test_no_region_was_ever_faster_than_its_floor(data: Path, h200: Device) -> None:
    """Every time that was measured on an H200: eager, compiled, autotuned, and the peers' libraries."""
    times = {r["name"]: r["h200"] for r in json.loads((data / "regions" / "regions.json").read_text())}
    ratios = {}
    for path in REGIONS.glob("*.txt"):
        measured = [v for k, v in times.get(path.stem, {}).items() if k != "floor_us" and isinstance(v, float)]
        if measured:
            floor = floor_us(counted(path.read_text(encoding="utf-8")), h200)
            ratios[path.stem] = min(measured) / floor
    assert len(ratios) >= 38
    assert {k: r for k, r in ratios.items() if r < 0.95} == {}
    assert min(ratios.values()) < 1.05  # a floor that nothing comes near would prove nothing


def test_no_peer_was_ever_faster_than_the_floor(data: Path, h200: Device) -> None:
    rows = json.loads((data / "measurements" / "peers-h200.json").read_text())["rows"]
    ratios = {}
    for row in rows:
        if row["op"] in PEERS and row.get("ms"):
            m, *_, n = sizes = [int(s) for s in row["shape"].split("x")]
            floor = floor_us(counted(PEERS[row["op"]].format(m=m, n=n, k=sizes[1])), h200)
            ratios[row["op"], row["shape"], row["impl"]] = row["ms"] * 1e3 / floor
    assert len(ratios) >= 100
    assert {k: r for k, r in ratios.items() if r < 0.95} == {}


def test_floor_of_what_fits_into_l2_leaves_its_writes_there(h200: Device) -> None:
    small = counted("x: f32[1024, 1024]\nreturn x + 1.0\n")
    assert floor_us(small, h200) == pytest.approx(1e6 * 4 * 2**20 / 4.3e12)
    # 24 + 24 MiB of 60: room for 12 MiB more, so 12 of the 24 that are written have to reach memory
    middle = counted("x: f32[6, 1024, 1024]\nreturn x + 1.0\n")
    assert floor_us(middle, h200) == pytest.approx(1e6 * (24 + 12) * 2**20 / 4.3e12)
    large = counted("x: f32[64, 1024, 1024]\nreturn x + 1.0\n")
    assert floor_us(large, h200) == pytest.approx(1e6 * 2 * 256 * 2**20 / 4.3e12)


def test_floor_says_what_it_is_made_of(h200: Device) -> None:
    text = floor_counting(counted(texts.EXAMPLE), h200)
    assert "the larger of" in text
    assert "4.30 TB/s" in text
    assert f"{2 * 8192 * 4096 * 16384 / 1e9:,.1f} GFLOP of matrix products at 790 TFLOP/s" in text
    assert "(measured rates); no launch is counted" in text
    a100 = find_device("A100")
    assert a100 is not None
    assert "the datasheet's rates" in floor_counting(counted(texts.EXAMPLE), a100)


def test_intermediates_that_fit_into_l2_are_not_read_from_memory_again(h200: Device) -> None:
    chain = "x: f32[{m}, 1024]\nreturn ((x + 1.0) * 2.0).exp()\n"
    small, large = (counted(chain.format(m=m)) for m in (1024, 65536))
    n = 4 * 2**20
    # three operations read 3 n and write 3 n; in L2 only x is read from memory
    assert small.unfused.bytes_read == 3 * n
    assert (dram(small.unfused_steps, h200).bytes_read, dram(small.unfused_steps, h200).bytes_written) == (n, 3 * n)
    beyond = dram(large.unfused_steps, h200)
    assert (beyond.bytes_read, beyond.bytes_written) == (3 * 64 * n, 3 * 64 * n)
    fused = dram(large.fused_steps, h200)
    assert (fused.bytes_read, fused.bytes_written) == (large.fused.bytes_read, large.fused.bytes_written)


def test_l2_drops_the_least_recently_used_tensor_first(h200: Device) -> None:
    third = int(L2_SHARE * h200.l2_bytes / 3)
    a, b, c, d = ((n, third) for n in range(4))
    again = [Step((a,), ()), Step((b,), ()), Step((c,), ()), Step((a,), ()), Step((d,), ())]
    assert dram(again, h200).bytes_read == 4 * third  # a is read once
    assert dram([*again, Step((a,), ())], h200).bytes_read == 4 * third  # and is still there: b had to leave
    assert dram([*again, Step((b,), ())], h200).bytes_read == 5 * third


def test_what_is_written_again_in_l2_reaches_memory_once(h200: Device) -> None:
    one, huge = (1, 2**20), (2, 2**30)
    assert dram([Step((), (one,)), Step((one,), (one,))], h200).bytes_written == 2**20
    # something larger than the L2 passes in between: the first value had to be written back
    assert dram([Step((), (one,)), Step((huge,), ()), Step((one,), (one,))], h200).bytes_written == 2 * 2**20


def test_dram_never_exceeds_the_bytes_that_are_touched(h200: Device) -> None:
    for path in sorted(REGIONS.glob("*.txt"))[::4]:
        region_cost = counted(path.read_text(encoding="utf-8"))
        for steps, count in (
            (region_cost.unfused_steps, region_cost.unfused),
            (region_cost.fused_steps, region_cost.fused),
        ):
            estimate = dram(steps, h200)
            assert estimate.bytes_read <= count.bytes_read
            assert estimate.bytes_written <= count.bytes_written


def test_savings_say_what_their_numbers_count() -> None:
    region_cost = counted(texts.EXAMPLE)
    savings = {s.name: s for s in region_cost.savings}
    by_label = {o.label: o for o in region_cost.operations}
    tail = sum(by_label[n].bytes_moved for n in ("add", "gelu", "mul"))
    assert "of the tail's operations only" in savings["tail-fused"].counting
    assert savings["tail-fused"].bytes_before == savings["tail-epilogue"].bytes_before == tail
    fused_tail = next(k for k in region_cost.kernels if k.kind == "fused")
    assert savings["tail-fused"].bytes_after == fused_tail.bytes_moved
    assert "without reading its result" in savings["tail-epilogue"].counting
    assert savings["tail-epilogue"].bytes_after == fused_tail.bytes_moved - by_label["matmul"].bytes_written
    assert "every operation's own reads and writes" in savings["region-fused"].counting
    assert savings["region-fused"].bytes_before == sum(o.bytes_moved for o in region_cost.operations)
    assert savings["region-fused"].bytes_after == sum(k.bytes_moved for k in region_cost.kernels)
    assert savings["region-ideal"].bytes_after == region_cost.ideal.bytes_moved
    assert savings["region-ideal"].launches_after == 1
