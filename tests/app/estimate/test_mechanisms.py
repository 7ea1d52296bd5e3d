"""What times are made of, one mechanism a test, with arithmetic that can be done on paper."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from app.advice.options import Option
from app.advice.rule import advise, least_effort
from app.analysis.analyze import AdviceContext, decide, prepare, shape_of
from app.estimate import predict
from app.estimate.call_time import FLEX, own_us
from app.estimate.facts import Kernel, ShapeFacts
from app.estimate.rates import BEYOND, FITTED, WITHOUT_ATLAS, Rates, spread
from app.estimate.region_features import attention_density, region_facts
from kernels.host import Host
from profiler.hardware import Device, find_device
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.model import Binding, Workload
from tests.app.advice.cases import H200, chain, cover, region

HALF = Workload(share_of_step=0.5)


def shape(text: str) -> ShapeFacts:
    return shape_of(lower(parse(text)), Binding())


def evaluated(text: str, share: float | None = 0.5, host: Host | None = None):
    workload = Workload((Binding(),), share_of_step=share)
    return decide(prepare(parse(text), workload, H200, AdviceContext(host=host)))


def test_an_own_kernel_is_predicted_by_its_own_curve() -> None:
    rates = replace(Rates(), rows={"triton:softmax": ((65536.0, 0.5),)})
    rows = shape("x: bf16[8192, 16384]\nreturn F.softmax(x, -1)\n")
    moved = 2 * 8192 * 16384 * 2
    expected = rates.times.event + rates.times.fused_kernel + 1e6 * moved / (0.5 * H200.copy_rate)
    assert own_us(rows, H200, "triton:softmax", rates) == pytest.approx(expected)


SOFTMAX = "x: bf16[8192, 16384]\nreturn F.softmax(x, -1)\n"
BARE = Host("NVIDIA H200", (9, 0), {"torch": "2.11.0"}, frozenset({"torch", "triton"}))


def test_the_own_kernel_is_offered_by_name_and_wins_where_nothing_is_near() -> None:
    """In the table of kernels: ours 132 µs; torch.compile 289, autotuned 253; F.softmax 249."""
    found = evaluated(SOFTMAX, host=BARE).advice
    assert (found.tool, found.mode) == ("triton", "softmax")
    assert "this project's kernel" in found.headline
    assert "triton:custom" not in {a.candidate for a in found.alternatives}  # it would be this one


def test_the_own_kernel_leaves_a_library_that_is_near_it() -> None:
    """FlagGems' rms_norm reaches nearly what ours does there: one line of effort less."""
    text = "x: bf16[16384, 4096]\nw: bf16[4096]\ny = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True)"
    text += " + 1e-6)\nreturn (y * w).to(bf16)\n"
    host = replace(BARE, packages=BARE.packages | {"flag_gems", "liger_kernel"})
    assert evaluated(text, host=host).advice.tool == "library"


def test_a_gain_under_a_per_cent_of_the_step_leaves_the_own_kernel_alone() -> None:
    assert evaluated(SOFTMAX, share=0.015, host=BARE).advice.tool == "skip"  # half of it would be saved: 0.7 %


def test_few_long_rows_are_for_few_processors() -> None:
    """One block a row: 4 rows of a million elements keep 4 of 132 processors busy."""
    few = shape("x: f32[4, 1048576]\nreturn F.softmax(x, -1)\n")
    many = shape("x: f32[1024, 4096]\nreturn F.softmax(x, -1)\n")  # as many bytes
    assert few.cost.ideal.bytes_moved == many.cost.ideal.bytes_moved
    for call in ("torch.nn.functional.softmax", "flag_gems.softmax", "liger_kernel.softmax"):
        assert predict.library_us(few, H200, call) > 5 * predict.library_us(many, H200, call)
    assert predict.eager_us(few, H200, WITHOUT_ATLAS) > 5 * predict.eager_us(many, H200, WITHOUT_ATLAS)
    splits_a_row = own_us(few, H200, "triton:softmax_axis", FITTED)
    assert splits_a_row < 0.2 * predict.eager_us(few, H200, WITHOUT_ATLAS)


def test_short_rows_cost_a_program_each() -> None:
    """A million rows of 128: one program a row took 641 µs, several rows a program 129 (H200)."""
    rows = shape("x: f16[1048576, 128]\nreturn F.softmax(x, -1)\n")
    assert predict.library_us(rows, H200, "flag_gems.softmax") > 4 * own_us(rows, H200, "triton:softmax", FITTED)


def test_forward_and_backward_are_two_kernels_that_read_their_inputs_twice() -> None:
    """silu(a) * b: forward reads 2 and writes 1; backward reads 3 and writes 2: 8 tensors, where one pass moves 6."""
    text = "a: f32[4096, 8192].requires_grad\nb: f32[4096, 8192].requires_grad\nreturn F.silu(a) * b\n"
    found, one = shape(text), 4096 * 8192 * 4
    assert found.halves == (3 * one, 5 * one)
    assert found.cost.ideal.bytes_moved == 6 * one
    least = 1e6 * 8 * one / H200.copy_rate
    assert 0.9 * least < predict.compiled_us(found, H200) < 1.25 * least


def test_causal_attention_by_hand_needs_half_of_its_scores() -> None:
    text = "".join(f"{n}: bf16[2, 16, 2048, 128]\n" for n in "qkv")
    text += "s = (q @ k.transpose(-2, -1)) * 0.088\nm = torch.tril(torch.ones(2048, 2048)).bool()\n"
    text += 's = s.masked_fill(~m, float("-inf"))\nreturn softmax(s, -1) @ v\n'
    assert attention_density(match(lower(parse(text)))) == 0.5
    plain = text.replace('s = s.masked_fill(~m, float("-inf"))\n', "")
    assert attention_density(match(lower(parse(plain)))) == 1.0


def test_a_window_leaves_flex_attention_what_it_keeps_and_the_floor_too() -> None:
    """A window of 512 of 4,096 rows: 5 of 32 blocks a row, fewer in the first; SDPA reads its mask and skips none."""
    text = "".join(f"{n}: bf16[2, 16, 4096, 128]\n" for n in "qkv")
    text += "i = arange(4096)\ns = (q @ k.transpose(-2, -1)) * 0.088\n"
    window = "s = s.masked_fill((i[:, None] < i[None, :]) | (i[:, None] - i[None, :] >= 512), float('-inf'))\n"
    rest = "return softmax(s.float(), -1).to(bf16) @ v\n"
    host = Host("NVIDIA H200", (9, 0), {}, frozenset({"torch"}), frozenset({"flex_attention"}))
    window_advice, plain_advice = (evaluated(text + lines + rest, host=host).advice for lines in (window, ""))
    windowed, whole = (
        {o.candidate: o.time_us.mid for o in a.alternatives if o.time_us is not None}
        for a in (window_advice, plain_advice)
    )
    blocks = (1 + 2 + 3 + 4 + 28 * 5) / 32**2
    flex, sdpa = f"library:{FLEX}", f"library:{predict.SDPA}"
    assert windowed[flex] < 1.5 * blocks * whole[flex]
    assert windowed[flex] < 0.5 * windowed[sdpa]
    assert windowed[sdpa] > whole[sdpa]
    assert window_advice.floor_us is not None and plain_advice.floor_us is not None
    assert window_advice.floor_us < 0.3 * plain_advice.floor_us
    assert window_advice.floor_us < windowed[flex]


def test_where_the_host_sets_the_pace_of_a_backward_the_criterion_compares_host_and_gpu() -> None:
    """Two launches are no share to compare with: what decides is the time of autograd's engine."""
    advice = advise(region(chain(0.01, 2), requires_grad=True), HALF, H200)
    (told,) = [c for c in advice.criteria if c.name == "kernel-problem"]
    assert told.holds is False
    assert str(told.value).startswith("host ") and "GPU" in str(told.value)
    assert told.threshold == "host 1.5 times the GPU"


def test_a_region_that_is_launches_goes_by_back_to_back_calls() -> None:
    advice = advise(region(chain(0.01, 30)), HALF, H200)
    times = {a.candidate: a.time_us.mid for a in advice.alternatives if a.time_us}
    assert times["eager"] == pytest.approx(FITTED.host.call + 30 * FITTED.host.launch)
    assert times["compile"] == pytest.approx(FITTED.host.compiled + FITTED.host.kernel)
    assert times["compile-reduce-overhead"] == pytest.approx(FITTED.host.graphs)
    assert times["triton:generated"] == pytest.approx(FITTED.host.generated)
    assert any("back-to-back" in n for n in advice.notes)


def test_a_step_that_waits_for_its_launches_is_still_a_graph() -> None:
    facts = region(chain(0.01, 30), gpu_idle_share=0.9, mean_kernel_us=2.0)
    advice = advise(facts, HALF, H200)
    assert (advice.tool, advice.mode) == ("compile", "reduce-overhead")


@pytest.mark.parametrize(("share", "tool"), [(0.3, "compile"), (0.95, "library")])
def test_what_is_not_installed_has_to_win_by_the_slow_end_of_its_prediction(share: float, tool: str) -> None:
    """Where torch.compile's kernel reaches a quarter of the memory's rate: a call a little faster does not win."""
    facts = region(chain(400), covers=(cover("elsewhere.call", installed=False),))
    slow = {name: replace(getattr(FITTED, name), pointwise=0.25) for name in ("default", "autotuned", "generated")}
    rates = replace(FITTED, calls={**FITTED.calls, "elsewhere": share}, **slow)
    assert advise(facts, HALF, H200, rates=rates).tool == tool


def test_where_torch_compile_covers_it_a_library_is_not_first_without_sizes() -> None:
    call = cover("somewhere.swiglu")
    assert advise(region(covers=(call,)), HALF, H200).tool == "library"
    assert advise(region(covers=(replace(call, verdict="C"),)), HALF, H200).tool == "compile"


def test_ranges_are_wider_where_nothing_was_fitted() -> None:
    other = find_device("NVIDIA A100")
    assert isinstance(other, Device)
    here, there = spread(100.0, "compile", FITTED, "NVIDIA H200"), spread(100.0, "compile", FITTED, other.name)
    assert there.low / 100 == pytest.approx((here.low / 100) ** BEYOND)
    assert there.high / 100 == pytest.approx((here.high / 100) ** BEYOND)
    notes = advise(region(chain()), HALF, other).notes
    assert any(f"nothing was measured on {other.name}" in n and "wider" in n for n in notes)
    assert not any("nothing was measured" in n for n in advise(region(chain()), HALF, H200).notes)


def test_a_kernel_to_be_written_has_to_save_its_share_over_the_best_of_the_rest() -> None:
    """Half of the region over torch.compile, which is 0.4 % of the step: enough for a kernel that is there."""
    from app.advice.case import Case
    from app.advice.model import Alternative, Tool
    from app.estimate.range import Range
    from app.thresholds import DEFAULTS

    def option(tool: Tool, candidate: str, mid: float, mode: str) -> Option:
        return Option(Alternative(tool, candidate, Range(mid, mid, mid), 1, "", True, "", mode))

    facts = region(chain())
    case = Case(facts, HALF, H200, DEFAULTS, (), Range(1000, 1000, 1000), 0.08, "given")
    keep, compiled = option("skip", "eager", 1000, "default"), option("compile", "compile", 100, "default")
    for mode, tool in (("custom", "compile"), ("softmax", "triton")):
        written = option("triton", f"triton:{mode}", 50, mode)
        assert least_effort([keep, compiled, written], keep, case, lambda o: o.mid, "time").tool == tool


def test_eager_and_library_split_the_bytes_that_stay_beside_a_part() -> None:
    facts = region(chain(operations=4))
    whole = predict.library(facts, H200, "quack.softmax")
    part = predict.library(facts, H200, "quack.softmax", frozenset({"op0", "op1"}))
    assert whole is not None and part is not None
    assert part.bytes_written == 3 * 100 * 10**6  # the call's result, and two operations' that stay
    assert whole.bytes_written == 100 * 10**6


def test_own_kernels_are_facts_and_not_the_rules_to_know() -> None:
    """Without the fact there is no such option: the pure rule names no kernel."""
    graph = lower(parse(SOFTMAX))
    facts = region_facts(graph, [shape_of(graph, Binding())], "softmax", "softmax", False)
    names = {a.candidate for a in advise(facts, HALF, H200).alternatives}
    assert "triton:softmax" not in names
    named = dataclasses.replace(facts, kernels=(Kernel("triton:softmax", "y = softmax(x)"),))
    found = next(a for a in advise(named, HALF, H200).alternatives if a.candidate == "triton:softmax")
    assert found.call == "y = softmax(x)"
