from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.accuracy.corpus.measured import read_measured
from app.accuracy.corpus.programs import load_programs
from app.advice.rule import advise
from app.atlas.interpolation import EIGHTY
from app.estimate import predict
from app.estimate.facts import FusionGap
from app.estimate.range import Range
from app.estimate.rates import FITTED, WITHOUT_ATLAS
from app.estimate.region_features import region_facts, shape_facts
from kernels.codegen import generated
from kernels.host import Host
from kernels.libraries import coverage
from profiler.region.graph.cost import cost
from profiler.region.graph.fusion import groups
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match, region_kind
from profiler.region.language.text import parse
from profiler.region.model import Workload
from tests.app.advice.cases import H200, chain, cover, product, region

REGIONS = Path(__file__).parents[2] / "regions"


@pytest.fixture(scope="module")
def lowered():
    """Every region of the folder, lowered once: name -> (graph, shape)."""
    found = {}
    for path in sorted(REGIONS.glob("*.txt")):
        graph = lower(parse(path.read_text(encoding="utf-8"), path.stem))
        found[path.stem] = graph, shape_facts(graph, cost(graph), groups(graph))
    return found


def near(pairs: list[tuple[float, float]]) -> float:
    """Share of (predicted, measured) within 20 %."""
    return sum(abs(p / m - 1) <= 0.2 for p, m in pairs) / len(pairs)


def test_the_rates_stay_near_the_times_that_they_were_fitted_with(lowered, data):
    measured = {r["name"]: r.get("h200", {}) for r in json.loads((data / "regions" / "regions.json").read_text())}
    eager, compiled, speedups = [], [], []
    for name, (_, shape) in lowered.items():
        times = measured[name]
        if not times.get("eager_us") or not times.get("compile_us"):
            continue
        one = predict.eager_us(shape, H200, WITHOUT_ATLAS)
        two = predict.compiled_us(shape, H200, rates=WITHOUT_ATLAS)
        eager.append((one, times["eager_us"]))
        compiled.append((two, times["compile_us"]))
        speedups.append((one / two, times["eager_us"] / times["compile_us"]))
    assert len(eager) >= 40
    assert near(eager) >= 0.75
    assert near(compiled) >= 0.75
    assert near(speedups) >= 0.75


ADVICE = {
    # what published numbers, or the times measured on an H200, allow
    "bias_gelu_mask": {"compile"},
    "pointwise_chain_12": {"compile"},
    "rmsnorm_manual_fwd": {"compile", "library"},
    "add_rmsnorm_residual": {"compile", "library"},
    "rope_rotate_half": {"compile", "library"},
    "launch_bound_tiny_chain": {"triton"},  # the Archive: 29 and 34 µs of wall time, a replayed CUDA graph 70 and 107
    "manual_causal_attention": {"library"},
    "manual_attention_short": {"library"},
    "w4a16_decode_m16": {"library"},
    "w4a16_prefill_m2048": {"compile"},
    "adam_step_manual": {"compile", "library"},
    "moe_router_softmax_topk": {"triton"},
    # this project's kernel, which wins, is no fact here; eager and torch.compile call cuDNN, alike without Inductor
    "depthwise_conv2d_k3": {"compile", "triton", "skip"},
    "gemm_layernorm_epilogue": {"triton", "compile"},
    "tiny_hidden_fused_mlp": {"triton", "compile"},
    # 138 µs by max-autotune, 136 by a kernel of this project: no other program shows what max-autotune makes of it
    "outer_dim_softmax_short": {"compile", "triton"},
    "square_gemm_8k": {"skip"},
    "fp32_matmul_no_tf32": {"skip"},
    "gae_tiny_share": {"skip"},
    # 1.24 times as fast by torch.compile on the H200; without asking Inductor its gain is too small to be seen
    "sparsemax_sort_bound": {"compile", "skip"},
    "fft_conv": {"skip"},
    "kv_cache_append": {"skip"},
}

NOT_GENERATED = {"moe_router_softmax_topk": "topk"}
"""As if the generator had refused it, which is not asked here: then a kernel is to be written."""


@pytest.mark.parametrize("name", ADVICE)
def test_advice_on_real_regions(lowered, data, name):
    from kernels.host import Host
    from kernels.libraries import coverage

    share = {r["name"]: r["share"] for r in json.loads((data / "regions" / "regions.json").read_text())}[name]
    graph, shape = lowered[name]
    matches = match(graph)
    kind, title = region_kind(graph, matches)
    host = Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2.11.0"}, packages=frozenset({"torch"}))
    covers = coverage(graph, matches, host)
    facts = region_facts(graph, [shape], kind, title, any(m.by_hand for m in matches), covers)
    facts = replace(facts, not_generated=NOT_GENERATED.get(name, ""))
    assert advise(facts, Workload(share_of_step=share), H200).tool in ADVICE[name]


def test_quantised_weights_are_seen(lowered):
    found = {n: region_facts(g, [s], "gemm", n, False).quantised for n, (g, s) in lowered.items()}
    seen = {n for n, dtype in found.items() if dtype}
    assert seen == {"w4a16_decode_m16", "w4a16_prefill_m2048", "int8_weight_only_decode", "fp8_rowwise_gemm_naive"}


def test_sizes_of_matrix_products_come_from_the_graph(lowered):
    _, shape = lowered["manual_attention_short"]
    first, second = (o for o in shape.operations if o.kind == "gemm")
    assert (first.batch, first.m, first.n, first.k) == (256, 1024, 1024, 64)
    assert (second.batch, second.m, second.n, second.k) == (256, 1024, 64, 1024)


def test_large_copies_approach_the_copy_rate():
    time = predict.eager_us(chain(10_000, 1), H200)  # 20 GB at 4.3 TB/s are 4,651 µs
    assert 4651 < time < 4651 * 1.1


def test_tiny_kernels_cost_their_launch():
    one, two = (predict.compiled_us(chain(size, 1), H200) for size in (0.001, 0.002))
    assert two == pytest.approx(one, rel=0.01)
    assert one > FITTED.times.fused_kernel


def test_product_with_odd_rows_is_slower_until_it_is_padded():
    odd, even = product(8192, 50257, 768), product(8192, 50304, 768)
    assert predict.eager_us(odd, H200) > 3 * predict.eager_us(even, H200)
    assert predict.compiled_us(odd, H200) == pytest.approx(predict.compiled_us(even, H200), rel=0.05)


def test_a_part_of_a_region_leaves_the_rest_eager():
    shape = chain(operations=4)
    part = predict.library_us(shape, H200, "quack.softmax", part=frozenset({"op0", "op1"}))
    whole = predict.library_us(shape, H200, "quack.softmax")
    assert whole < part < predict.eager_us(shape, H200)


def test_ranges_span_the_spread_of_the_fit():
    prediction = predict.eager(region(chain()), H200)
    low, high = FITTED.spread["eager"]
    assert prediction.time_us.low == pytest.approx(prediction.time_us.mid * low)
    assert prediction.time_us.high == pytest.approx(prediction.time_us.mid * high)


def test_unknown_calls_still_get_a_time():
    advice = advise(region(chain(), covers=(cover("somewhere.call"),)), Workload(), H200)
    assert next(a for a in advice.alternatives if a.candidate == "library:somewhere.call").time_us is not None


def test_each_part_that_a_compiled_function_writes_into_a_joined_result_costs_its_host_a_view():
    def host_us(parts: int, mode: str = "default") -> float:
        lines = [f"h{n} = a[:, {n}] * b[:, {n}]" for n in range(parts)]
        joined = f"return torch.stack([{', '.join(f'h{n}' for n in range(parts))}], 1)"
        text = "\n".join(["a: f32[64, 32, 256]", "b: f32[64, 32, 256]", *lines, joined])
        graph = lower(parse(text))
        shape = shape_facts(graph, cost(graph), groups(graph))
        facts = region_facts(graph, [shape], "other", "joined", by_hand=False)
        prediction = predict.torch_compile(facts, H200, mode)
        assert prediction is not None
        return prediction.host_us

    assert host_us(32) - host_us(4) == pytest.approx(28 * FITTED.host.part)
    assert host_us(32, "reduce-overhead") == host_us(4, "reduce-overhead")


COMBINED = """x: bf16[8192, 1024]
w: f32[8192, 1]
index: i64[8192].below(8192)
y = (x * w).index_select(0, index).view(4096, 2, 1024).sum(1).to(bf16)
return y"""


def test_what_the_generator_keeps_apart_costs_a_write_and_a_read():
    graph = lower(parse(COMBINED))
    made = generated.attempt(graph)
    region_cost = cost(graph)
    apart = FusionGap.between(made.launches, made.bytes_written, made.bytes_between, shape_facts(graph, region_cost))
    # Its product is kept in f32 where torch.compile reads through the index: 8192 x 1024 x 4 bytes in addition.
    assert apart.written == apart.read == pytest.approx(8192 * 1024 * 4 / (4096 * 1024 * 2), rel=0.02)
    shape = shape_facts(graph, region_cost, groups(graph))
    more = predict.generated_us(shape, H200, FITTED, apart) - predict.generated_us(shape, H200, FITTED)
    moved_us = 2 * 8192 * 1024 * 4 / (H200.copy_rate * FITTED.generated.pointwise) * 1e6
    assert more == pytest.approx(moved_us + apart.launches * FITTED.times.fused_kernel, rel=0.02)


def test_a_generator_that_fuses_as_much_costs_nothing_more():
    graph = lower(parse("x: f32[4096, 4096]\nreturn F.gelu(x) * 2 + x"))
    made = generated.attempt(graph)
    assert (
        FusionGap.between(made.launches, made.bytes_written, made.bytes_between, shape_facts(graph, cost(graph)))
        == FusionGap()
    )


def test_a_sum_that_the_generator_keeps_apart_reads_again_what_is_stored_anyway():
    """GELU's gradient goes to two products, and into the bias's: 77 MB that a kernel of 25 µs reads (H200)."""
    inputs = "x: bf16[64, 28, 28, 192].requires_grad\nw: bf16[768, 192].requires_grad\nb: bf16[768].requires_grad\n"
    graph = lower(parse(inputs + "return gelu(linear(x, w, b))\n"))
    found, made = cost(graph), generated.attempt(graph)
    assert made.bytes_between == pytest.approx(50176 * 768 * 2, rel=0.02)
    shape = shape_facts(graph, found, groups(graph))
    apart = FusionGap.between(made.launches, made.bytes_written, made.bytes_between, shape)
    assert apart.written == pytest.approx(0, abs=0.02)
    assert apart.read == pytest.approx(0.5, rel=0.02)  # of GELU and its gradient, which are written


def test_what_a_group_reads_of_another_is_not_the_generators_alone():
    graph = lower(parse("x: f32[512, 512]\ny = torch.relu(x)\nz = y @ x\nreturn y, F.gelu(z) + y\n"))
    assert shape_facts(graph, cost(graph), groups(graph)).exchanged == 512 * 512 * 4


def test_forward_and_backward_have_the_engine_as_their_hosts_cost():
    graphs = [lower(parse(f"x: f32[64, 64]{more}\nreturn x * 2")) for more in ("", ".requires_grad")]
    alone, trained = (
        predict.eager(region_facts(g, [shape_facts(g, cost(g), groups(g))], "other", "r", by_hand=False), H200)
        for g in graphs
    )
    assert trained.host_us - alone.host_us >= FITTED.host.engine


def test_a_scan_goes_by_its_own_element_not_by_a_masks():
    text = "x: f32[2048, 32768]\nreturn (x.cumsum(-1) > 1).sum(-1)"
    graph = lower(parse(text))
    shape = shape_facts(graph, cost(graph), groups(graph))
    floor_us = 2048 * 32768 * 4 / H200.copy_rate * 1e6
    assert predict.compiled_us(shape, H200) < 2 * floor_us  # by the mask's single byte it was four times that


@pytest.mark.parametrize(("columns", "held"), [(64, True), (65, False)])
def test_autotuning_holds_a_strided_axis_as_short_as_inductor_keeps_it(columns, held):
    graph = lower(parse(f"x: f32[{columns}, 1048576]\nreturn torch.softmax(x, 0)"))
    shape = shape_facts(graph, cost(graph), groups(graph))
    ratio = predict.compiled_us(shape, H200) / predict.compiled_us(shape, H200, "max-autotune")
    assert (ratio > 1.5) is held  # 1.67 to 3.6 measured at 16 to 48 rows, 1.14 at 128 (tests/records/kernels-h200.json)


def test_wall_times_are_as_unsure_as_the_host_and_no_shorter_than_the_device():
    device = Range(90.0, 100.0, 110.0)
    assert predict.by_the_wall(device, 0.0) == device
    paced = predict.by_the_wall(device, 300.0)
    assert paced.mid == 300.0
    assert paced.high / paced.mid == pytest.approx(math.exp(EIGHTY * predict.HOST_DEVIATION))
    assert paced.low == pytest.approx(300.0 / math.exp(EIGHTY * predict.HOST_DEVIATION))
    busy = predict.by_the_wall(device, 50.0)
    assert (busy.low, busy.mid, busy.high) == (device.low, device.mid, device.high)
    assert predict.by_the_wall(device, 95.0).high > device.high  # the host may yet be the longer


def recorded(name, by_hand):
    """(graph, facts, µs by the wall clock of each candidate) of a program of the fit third, on an H200."""
    measured = next(r for r in read_measured() if r["name"] == name and r["device"] == "NVIDIA H200")
    walls = {c["name"]: c["wall_us"] for c in measured["candidates"] if c["wall_us"]}
    graph = lower(parse(next(p.text for p in load_programs("fit") if p.name == name)))
    facts = region_facts(graph, [shape_facts(graph, cost(graph), groups(graph))], "attention", "r", by_hand=by_hand)
    return graph, facts, walls


@pytest.mark.parametrize("name", ["made-attention-0000", "made-attention-0021"])
def test_flexattention_keeps_the_host_about_as_long_as_torch_compile(name):
    """By the wall clock of a record where the host sets the pace: 1.3 and 1.0 times as long (in-sample)."""
    graph, facts, walls = recorded(name, by_hand=True)
    (call,) = (c for c in coverage(graph, match(graph), Host()) if c.candidate == "library:" + predict.FLEX)
    flex = predict.library(facts, H200, predict.FLEX, call.operations)
    compiled = predict.torch_compile(facts, H200, "default")
    assert flex.host_us / compiled.host_us == pytest.approx(walls[call.candidate] / walls["compile"], rel=0.4)


@pytest.mark.parametrize(("backend", "near"), [("flash", 0.1), ("cudnn", 0.3), ("efficient", 0.1)])
def test_what_stays_eager_next_to_a_call_has_its_backward_as_well(backend, near):
    """Eager calls SDPA already: with one backend of it the host took 1.1 to 1.4 times as long (in-sample)."""
    graph, facts, walls = recorded("made-attention-0032", by_hand=False)
    call = next(c for c in coverage(graph, match(graph), Host()) if c.candidate == f"library:{predict.SDPA}.{backend}")
    assert call.candidate.removeprefix("library:") in predict.BACKENDS
    chosen = predict.library(facts, H200, predict.SDPA, call.operations, by_context=True)
    eager = predict.eager(facts, H200)
    assert chosen.host_us / eager.host_us == pytest.approx(walls[call.candidate] / walls["eager"], rel=near)
