from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from app.advice.criteria import NAMES
from app.advice.model import EFFORT_ORDER, Advice, Alternative
from app.advice.options import Option
from app.advice.rule import advise, decision_inputs, least_effort, share_of_launches, speedup, step_speedup, verdict
from app.estimate.range import Range
from app.thresholds import Thresholds
from profiler.hardware import DEVICES, find_device
from profiler.region.model import Binding, Workload
from profiler.trace.analyze.compile_blockers import CompileBlocker
from tests.app.advice.cases import H200, broken_chain, chain, cover, product, region

HALF = Workload(share_of_step=0.5)


def criterion(advice: Advice, name: str):
    return next(c for c in advice.criteria if c.name == name)


def decided(facts, workload=HALF, **more) -> tuple[str, str]:
    advice = advise(facts, workload, H200, **more)
    return advice.tool, advice.mode


SITUATIONS = {
    "a pointwise chain is torch.compile's": (region(chain()), HALF, ("compile", "default")),
    "one pointwise operation stays": (region(chain(operations=1)), HALF, ("skip", "default")),
    "a plain matrix product is cuBLAS's": (
        region(product(), kind="gemm", title="GEMM", covers=(cover("torch.mm", already=True),)), HALF,
        ("skip", "default"),
    ),
    "a target that is met": (
        region(chain()), Workload(share_of_step=0.5, step_time_us=900.0, target_step_time_us=1000.0),
        ("skip", "default"),
    ),
    "a target that is missed": (
        region(chain()), Workload(share_of_step=0.5, step_time_us=1100.0, target_step_time_us=1000.0),
        ("compile", "default"),
    ),
    "under one per cent of the step": (region(chain()), Workload(share_of_step=0.009), ("skip", "default")),
    "an unknown share counts": (region(chain()), Workload(), ("compile", "default")),
    "communication": (region(kind="communication", communication=True), HALF, ("skip", "default")),
    "waiting for the host": (region(chain(), waits_for_host=True), HALF, ("skip", "default")),
    # By back-to-back calls, measured on an H200: one generated kernel 29 to 34 µs, a replayed graph 70 to 107.
    "many tiny launches": (region(chain(0.01, 30)), HALF, ("triton", "generated")),
    "a GPU idle between tiny kernels": (
        region(chain(), gpu_idle_share=0.93, mean_kernel_us=2.9), HALF, ("compile", "reduce-overhead"),
    ),
    "a GPU idle between long kernels": (
        region(chain(), gpu_idle_share=0.93, mean_kernel_us=80.0), HALF, ("compile", "default"),
    ),
    "compiled already": (region(kind="compiled", compiled=True), HALF, ("skip", "default")),
    "a fallback in the middle, nothing covers it": (
        region(broken_chain(), kind="sort", title="router", externs=("topk",), not_generated="topk"), HALF,
        ("triton", "custom"),
    ),
    "the same, too small for Triton": (
        region(broken_chain(), kind="sort", title="router", externs=("topk",), not_generated="topk"),
        Workload(share_of_step=0.01005),
        ("skip", "default"),
    ),
    "attention by hand": (
        region(kind="attention", title="attention by hand", by_hand=True), HALF,
        ("library", "torch.nn.functional.scaled_dot_product_attention"),
    ),
    "an optimizer one tensor at a time": (
        region(kind="optimizer", title="optimizer step (one tensor at a time)", optimizer=True), HALF,
        ("library", "torch.optim.fused"),
    ),
    "SGD is not replaced by AdamW": (
        region(kind="optimizer", title="optimizer step (foreach)", optimizer=True, optimizer_class="SGD"), HALF,
        ("library", "torch.optim.SGD"),
    ),
    "an optimizer that torch has not": (
        region(kind="optimizer", title="optimizer step (foreach)", optimizer=True, optimizer_class="Shampoo"), HALF,
        ("compile", "default"),
    ),
    "a fused optimizer": (
        region(kind="optimizer", title="optimizer step (fused)", optimizer=True), HALF, ("skip", "default"),
    ),
    "an operation that nobody can see into": (
        region(kind="other", title="custom operation mylib::norm", already_tuned=True, shapes=()), HALF,
        ("skip", "default"),
    ),
    "needs NVLink": (
        region(chain(), needs=("nvlink",), communication=True, bound="memory"), HALF, ("compile", "default"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name):
    facts, workload, expected = SITUATIONS[name]
    assert decided(facts, workload) == expected


def test_every_criterion_is_shown_once_and_in_order():
    advice = advise(region(chain()), HALF, H200)
    assert tuple(c.name for c in advice.criteria) == NAMES
    assert all(c.because and c.source for c in advice.criteria)


def test_unknown_share_is_said():
    advice = advise(region(chain()), Workload(), H200)
    assert criterion(advice, "worth-it").holds is None
    assert any("share of the step is not known" in n for n in advice.notes)
    assert advice.step_speedup is None


def test_covering_library_that_is_slower_does_not_win_by_being_first():
    # 100 MB in and out: a call at 62 % of the copy rate takes 80 µs, one fused kernel about 54.
    facts = region(chain(), kind="rms_norm", title="RMSNorm by hand", by_hand=True, covers=(cover(),))
    advice = advise(facts, HALF, H200)
    assert advice.tool == "compile"
    assert criterion(advice, "library-covers").holds is True
    by_name = {a.candidate: a for a in advice.alternatives}
    slower = by_name["library:torch.nn.functional.rms_norm"].time_us
    assert slower is not None
    assert slower.mid > by_name["compile"].time_us.mid * 1.1


def test_library_wins_where_it_is_as_fast_as_compile():
    facts = region(chain(), covers=(cover("torch.optim.AdamW"),))
    assert decided(facts) == ("library", "torch.optim.AdamW")


def test_package_to_install_has_to_win_by_the_margin():
    quack = cover("quack.softmax", installed=False)
    assert decided(region(chain(), covers=(quack,)))[0] == "compile"
    slow = region(chain(kind="softmax"), kind="softmax", title="softmax", covers=(quack,))
    assert decided(slow)[0] in ("triton", "library")


def test_triton_needs_its_margin_over_the_rest():
    facts = region(broken_chain(), kind="sort", title="router", externs=("topk",), not_generated="topk")
    assert decided(facts)[0] == "triton"
    assert decided(facts, settings=Thresholds(win_margin=0.999))[0] != "triton"
    assert decided(facts, settings=Thresholds(win_step_share=0.9))[0] != "triton"


def test_chosen_tool_is_among_the_admitted_alternatives_with_its_mode():
    for facts, workload, _ in SITUATIONS.values():
        advice = advise(facts, workload, H200)
        same = [a for a in advice.alternatives if a.tool == advice.tool and a.mode == advice.mode]
        assert same
        assert any(a.admitted for a in same)
        assert EFFORT_ORDER.index(advice.tool) <= EFFORT_ORDER.index("cuda")


def test_floor_is_the_fewest_bytes_at_the_copy_rate():
    advice = advise(region(chain(megabytes=4300)), HALF, H200)
    assert advice.floor_us == pytest.approx(2000.0)  # 8.6 GB at 4.3 TB/s


def test_amdahl():
    two = speedup_of(2.0)
    assert step_speedup(two, 0.5).mid == pytest.approx(1 / 0.75)
    assert step_speedup(two, 1.0).mid == pytest.approx(2.0)
    assert step_speedup(two, None) is None


def speedup_of(factor: float):
    from app.estimate.range import Range

    return speedup(Range(factor, factor, factor), Range(1.0, 1.0, 1.0))


def test_observed_time_replaces_the_estimate():
    observed = Workload((Binding((), 10.0, 5000.0),), step_time_us=10_000.0, observed=True)
    advice = advise(region(chain()), observed, H200)
    keep = next(a for a in advice.alternatives if a.candidate == "eager")
    assert keep.time_us.mid == 500.0
    assert criterion(advice, "worth-it").value == pytest.approx(0.5)


def test_share_of_launches_in_a_launch_bound_step():
    facts = region(chain(), gpu_idle_share=0.9, mean_kernel_us=2.0)
    # 10 ms step, 10 % busy: 1,000 µs of kernels of 2 µs are 500 launches; this region has 100 of them.
    workload = Workload(step_time_us=10_000.0, launches_per_step=100.0)
    assert share_of_launches(facts, workload, Thresholds()) == pytest.approx(0.2)
    assert share_of_launches(region(chain(), gpu_idle_share=0.1, mean_kernel_us=2.0), workload, Thresholds()) is None


def test_forward_and_backward_that_the_host_paces_is_launch_bound_by_itself():
    small, large = chain(20, operations=1), chain(2000, operations=1)
    host_bound = advise(region(small, requires_grad=True), HALF, H200)
    assert criterion(host_bound, "kernel-problem").holds is False
    assert "host sets the pace" in criterion(host_bound, "kernel-problem").because
    assert host_bound.tool == "skip"  # a function of its own brings autograd more work than it saves
    for facts in (region(small), region(large, requires_grad=True)):
        assert criterion(advise(facts, HALF, H200), "kernel-problem").holds is True
    seen = Workload((Binding((), 10.0, 5000.0),), step_time_us=10_000.0, observed=True)
    assert criterion(advise(region(small, requires_grad=True), seen, H200), "kernel-problem").holds is True


def test_several_shapes_weigh_by_their_calls():
    from dataclasses import replace

    small, large = replace(chain(40), calls=99.0), replace(chain(1000), calls=1.0)  # no launch sets their pace
    advice = advise(region(small, large), HALF, H200)
    keep = next(a for a in advice.alternatives if a.candidate == "eager").time_us.mid
    alone = [advise(region(s), HALF, H200).alternatives[0].time_us.mid for s in (small, large)]
    assert keep == pytest.approx(0.99 * alone[0] + 0.01 * alone[1])
    assert "dynamic=True" in next(a for a in advice.alternatives if a.candidate == "compile").call


def test_memory_objective_goes_by_bytes_written():
    facts = region(chain(operations=1))
    assert decided(facts)[0] == "skip"
    assert advise(region(chain()), HALF, H200, objective="memory").tool == "compile"
    with pytest.raises(ValueError, match="objective"):
        advise(facts, HALF, H200, objective="energy")


def test_f32_product_is_told_about_tf32():
    facts = region(product(dtype="f32"), kind="gemm", title="GEMM", covers=(cover("torch.mm", already=True),))
    assert "set_float32_matmul_precision" in advise(facts, HALF, H200).action


def test_rows_that_miss_16_bytes_are_named():
    facts = region(product(8192, 50257, 768), kind="gemm", title="GEMM", covers=(cover("torch.mm", already=True),))
    assert any("50,257" in n for n in advise(facts, HALF, H200).notes)


def test_datasheet_ceilings_are_said():
    advice = advise(region(chain()), HALF, find_device("A100"))
    assert any("datasheet" in n for n in advice.notes)
    assert advice.device == "NVIDIA A100"


def test_advice_imports_no_torch():
    code = "import sys, app.advice.evidence, app.advice.widget; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def obstacle(effect: str, inside: bool) -> CompileBlocker:
    return CompileBlocker("kind", effect, "title", "mylib::op", 2.0, "because", "do this", "module", inside=inside)


@pytest.mark.parametrize("effect", ["break", "opaque"])
def test_what_breaks_the_graph_between_its_operations_keeps_torch_compile_from_fusing(effect: str):
    found = criterion(advise(region(chain(), obstacles=(obstacle(effect, True),)), HALF, H200), "compile-fuses")
    assert found.holds is False
    assert "between its operations `mylib::op` (2 a step)" in found.because
    assert "do this" in found.because


def test_what_breaks_the_graph_beside_it_is_to_be_fixed_first_and_the_region_still_fuses():
    advice = advise(region(chain(), obstacles=(obstacle("break", False),)), HALF, H200)
    found = criterion(advice, "compile-fuses")
    assert found.holds is True
    assert "to fix first, in the same module: `mylib::op` (2 a step) breaks the graph: do this" in found.because
    assert advice.tool == "compile"


def test_a_wait_inside_does_not_keep_torch_compile_from_fusing():
    found = criterion(advise(region(chain(), obstacles=(obstacle("wait", True),)), HALF, H200), "compile-fuses")
    assert found.holds is True
    assert "also there: `mylib::op`" in found.because


def test_without_obstacles_nothing_is_said_of_them():
    found = criterion(advise(region(chain()), HALF, H200), "compile-fuses")
    assert "mylib" not in found.because
    assert "first" not in found.because


@pytest.mark.parametrize("us", [0.0, 5.0])
@pytest.mark.parametrize("objective", ["time", "memory"])
def test_a_region_that_is_only_views_is_left_however_long_it_was_seen_to_take(us, objective):
    from app.analysis.analyze import AdviceContext, decide, prepare
    from profiler.region.language.text import parse

    views = parse("x: f32[64, 32]\nreturn x.t()\n")
    seen = Workload((Binding((), 1.0, us),), step_time_us=100.0, share_of_step=0.5, observed=True)
    advice = decide(prepare(views, seen, H200, AdviceContext(objective=objective))).advice
    assert advice.tool == "skip"
    assert "views" in advice.action


def test_nothing_is_taken_where_what_there_is_has_no_figure():
    keep = Option(Alternative("skip", "eager", Range(9.0, 9.0, 9.0), 0, ""))
    cuda = Option(Alternative("cuda", "cuda:custom", Range(1.0, 1.0, 1.0), 1000, ""), bytes_written=8)
    on = verdict(decision_inputs(region(chain()), HALF, H200))
    written = lambda option: option.bytes_written  # noqa: E731
    assert least_effort([keep, cuda], keep, on.case, written, "memory") is keep
    assert least_effort([keep], keep, on.case, written, "memory") is keep


def test_portability_is_said_for_every_device():
    by_arch = {d.arch: criterion(advise(region(chain()), HALF, d), "portable") for d in DEVICES}
    assert by_arch["sm_70"].holds is False
    assert by_arch["sm_90"].holds is True
    assert by_arch["gfx942"].holds is True
    assert "AMD (gfx942) and NVIDIA" in by_arch["gfx942"].because
    assert criterion(advise(region(chain(), needs=("nvlink",)), HALF, H200), "portable").holds is False


@pytest.mark.parametrize(("generated_low", "mode"), [(400.0, "custom"), (300.0, "default")])
def test_a_kernel_to_write_stands_behind_what_can_be_launched_whose_range_reaches_its_own(generated_low, mode):
    """torch.compile takes 500 to 700, the kernel to write at most 380; what is generated may take less than that."""
    keep = Option(Alternative("skip", "eager", Range(1000, 1000, 1000), 0, "", mode="default"))
    compiled = Option(Alternative("compile", "compile", Range(500, 600, 700), 1, "", mode="default"))
    made = Alternative("triton", "triton:generated", Range(generated_low, 590, 700), 50, "", mode="generated")
    written = Option(Alternative("triton", "triton:custom", Range(200, 300, 380), 90, "", mode="custom"))
    on = verdict(decision_inputs(region(chain()), HALF, H200))
    options = [keep, compiled, Option(made), written]
    taken = least_effort(options, keep, on.case, lambda o: o.mid, "time")
    assert taken.alternative.mode == mode


def test_the_floor_is_that_of_the_sizes_that_times_are_averaged_over():
    """One call of 4 GB and three of a quarter: now, predicted and the floor are of the same mix."""
    large, small = region(chain(megabytes=4000)), region(chain(megabytes=1000))
    mixed = replace(
        large, shapes=(*(replace(s, calls=1.0) for s in large.shapes), *(replace(s, calls=3.0) for s in small.shapes))
    )
    floors = [advise(facts, HALF, H200).floor_us for facts in (large, small, mixed)]
    assert floors[2] == pytest.approx((floors[0] + 3 * floors[1]) / 4)
    eager = [
        next(a.time_us.mid for a in advise(f, HALF, H200).alternatives if a.candidate == "eager")
        for f in (large, small, mixed)
    ]
    assert eager[2] == pytest.approx((eager[0] + 3 * eager[1]) / 4, rel=1e-3)
