"""The user's own function as a candidate: loaded, checked, timed, and judged for what it is, in the real pipeline.

Without a GPU it is checked in Triton's interpreter. The timed part runs on the CPU with the host's clock.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kernels.measure import records, rounds
from kernels.measure.candidate.task import WrongOutputError
from kernels.measure.candidate.user_kernel import as_outputs, load
from kernels.measure.kernel_verdict import KernelVerdict, kernel_verdict
from kernels.measure.messages import Round, UserKernel, Warm
from kernels.measure.model import Validation
from kernels.measure.plan import Plan
from kernels.measure.session import Limits, Modules, Session, ValidationRequest, validate
from profiler.region.language.text import parse
from tests.kernels.measure.fake_planner import offered
from tests.kernels.measure.limits import ANSWER_S, HANG_S, short_for
from tests.kernels.measure.test_records import ANSWER

FILE = str(Path(__file__).parents[1] / "users_kernels.py")
NORM = """x: f32[64, 40]
w: f32[40]
return x * rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
"""
TRAINED = NORM.replace("]\n", "].requires_grad\n")
PRODUCT = "x: bf16[64, 40]\nw: bf16[40, 48]\nreturn x @ w\n"
CHAIN = "x: f32[600, 800]\ny = x\nfor i in range(100):\n    y = y + x\nreturn y\n"


def judged(fork_server, function: str, text: str = NORM, file: str = FILE) -> KernelVerdict:
    request = ValidationRequest(
        text, candidates=("eager",), device="cpu", kernel=UserKernel(file, function),
        limits=Limits(kernel_s=HANG_S if function == "hangs" else ANSWER_S, kernel_memory_bytes=2**30),
    )  # fmt: skip
    verdict = kernel_verdict(validate(request, fork_server=fork_server))
    assert verdict is not None
    return verdict


VERDICTS = {
    "rms_norm": ("unmeasured", "it is right (checked in Triton"),
    "in_torch": ("unmeasured", "launched no Triton kernel"),
    "scale_off": ("wrong", "output 0 (f32), normal inputs: relative error 0.01"),
    "caches_its_result": ("cheats", "what it had computed for other inputs: output 0 (f32), normal again inputs"),
    "caches_by_address": ("cheats", "what it had computed for other inputs: output 0 (f32), refilled inputs"),
    "returns_the_last": ("cheats", "what it had computed for other inputs"),
    "falls_back": ("cheats", "something else computes it"),
    "leaves_a_thread": ("cheats", "thread running behind its call: helper"),
    "replaces_the_clock": ("cheats", "replaced time.perf_counter"),
    "crashes": ("crashed", "SIGABRT"),
    "raises": ("crashed", "ValueError: no such tile (raised at users_kernels.py:"),
    "hangs": ("hung", f"no answer in {HANG_S:.0f} s"),
    "changes_its_input": ("wrong", "changed its input x"),
    "returns_a_dict": ("wrong", "returned dict, not a tensor"),
    "returns_two": ("wrong", "returned (Tensor, Tensor), not a tensor"),
    "takes_three": ("crashed", "it gets 2 tensors, in the order of the region's text: x: f32["),
    "takes_all_memory": ("crashed", "more memory than there is"),
    "norm_kernel": ("crashed", "is a Triton kernel: name the Python function"),
    "number": ("crashed", "of type int, no function"),
    "missing": ("crashed", "has no missing"),
}


@pytest.mark.parametrize("function", VERDICTS)
def test_each_kernel_gets_the_verdict_that_is_true_of_it(fork_server, function):
    verdict = judged(fork_server, function)
    expected, said = VERDICTS[function]
    assert verdict.verdict == expected, verdict.because
    assert said in verdict.because
    assert verdict.candidate == f"kernel:{function}"
    assert (verdict.against, verdict.ratio, verdict.speedup) == (None, None, None)


def test_gradients_are_checked_through_autograd(fork_server):
    assert judged(fork_server, "trained", TRAINED).verdict == "unmeasured"
    skewed = judged(fork_server, "wrong_gradient", TRAINED)
    assert (skewed.verdict, "the gradient of w" in skewed.because) == ("wrong", True)
    plain = judged(fork_server, "rms_norm", TRAINED)
    assert (plain.verdict, "torch.autograd.Function" in plain.because) == ("wrong", True)


def test_what_the_interpreter_cannot_compute_is_not_called_wrong(fork_server):
    verdict = judged(fork_server, "product", PRODUCT)
    assert verdict.verdict == "unmeasured"
    assert "bf16" in verdict.because, "called neither right nor wrong without saying why"


def test_a_wrong_bf16_kernel_is_wrong_in_f32_as_well(fork_server):
    text = NORM.replace("f32[", "bf16[").replace("return x * ", "v = x.float()\nreturn (v * ")
    text = text.replace("x.square()", "v.square()").replace(" * w\n", " * w.float()).to(bf16)\n")
    assert judged(fork_server, "rms_norm", text).verdict == "unmeasured"
    wrong = judged(fork_server, "scale_off", text)
    assert (wrong.verdict, "(bf16)" in wrong.because) == ("wrong", True)


def test_it_does_not_change_what_becomes_of_the_others(fork_server):
    """Its neighbours, their order, the outcome and the best are those of a validation without it."""

    def told(kernel: UserKernel | None) -> Validation:
        return validate(ValidationRequest(NORM, device="cpu", kernel=kernel), fork_server=fork_server)

    alone, together = told(None), told(UserKernel(FILE, "crashes"))
    assert together.candidates[0].status == "correct"
    assert [(c.name, c.status) for c in together.candidates if c.name != "kernel:crashes"] == [
        (c.name, c.status) for c in alone.candidates
    ]
    assert (together.outcome, together.best, together.reason) == (alone.outcome, alone.best, alone.reason)


def timed(fork_server, function: str, folder: Path) -> KernelVerdict:
    """All of a session but its plan, which says that the region is to be timed here as it stands."""
    modules = Modules("tests.kernels.measure.candidate.host_clock")
    kernel = UserKernel(FILE, function)
    request = ValidationRequest(CHAIN, timing_s=0.6, rounds=5, budget_s=240, kernel=kernel, limits=Limits(kernel_s=60))
    one = replace(ANSWER, device=None, reduced=CHAIN, reduced_wide=CHAIN, candidates=[offered("eager")])
    plan = Plan(one, [{}], [1])
    session = Session(request, parse(CHAIN), None, None, modules)
    try:
        session.pool.records = plan.records(None, None, kernel)
        session.start(fork_server, plan)
        session.turn_file = str(folder / "turn")
        session.prepare(plan)
        session.judge(plan)
        assert rounds.measure(session.pool, plan) == ""
        rounds.finish(session.pool, plan)
        summary = records.summarise(session.pool.records, [{}], [1.0], [None], [0.0])
    finally:
        session.close()
    assert [c.name for c in summary.contenders] == ["eager"], "the advice rests on no kernel of the user's"
    by = {"decided_by": summary.by}
    verdict = kernel_verdict(Validation("unmeasured", "", CHAIN, summary.results, conditions=by))
    assert verdict is not None
    return verdict


def test_a_kernel_that_pays_is_kept_with_how_much_faster_it_is(fork_server, tmp_path):
    verdict = timed(fork_server, "chain_in_one", tmp_path)
    assert (verdict.verdict, verdict.against) == ("keep", "eager"), verdict.because
    assert verdict.speedup is not None and verdict.speedup.low > 1.5
    assert "as fast as the region as it is written" in verdict.because


def test_a_kernel_that_is_slower_is_deleted(fork_server, tmp_path):
    verdict = timed(fork_server, "chain_slowly", tmp_path)
    assert (verdict.verdict, verdict.against) == ("delete", "eager"), verdict.because
    assert verdict.ratio is not None and verdict.ratio.low > 1
    assert "the region as it is written is faster" in verdict.because


def test_a_result_that_is_kept_once_it_is_timed_is_told_from_one_that_is_only_wrong(fork_server, tmp_path):
    kept = timed(fork_server, "caches_later", tmp_path)
    assert kept.verdict == "cheats", kept.because
    assert "what it had computed for other inputs" in kept.because
    assert "found in the timed calls' outputs" in kept.because
    wrong = timed(fork_server, "wrong_later", tmp_path)
    assert (wrong.verdict, "found in the timed calls' outputs" in wrong.because) == ("wrong", True), wrong.because


def test_one_that_hangs_while_it_is_timed_costs_itself(fork_server, tmp_path):
    with short_for(lambda child, request: child.name.startswith("kernel:") and isinstance(request, Warm | Round)):
        verdict = timed(fork_server, "sleeps_while_timed", tmp_path)
    assert (verdict.verdict, verdict.because) == ("hung", "no answer in 2 s")


def test_a_file_in_a_package_is_loaded_as_a_part_of_it_whatever_the_package_is_called(tmp_path):
    package = tmp_path / "kernels"  # as this project's own
    (package / "deep").mkdir(parents=True)
    for folder in (package, package / "deep"):
        (folder / "__init__.py").write_text("")
    (package / "shared.py").write_text("factor = 3\n")
    (package / "deep" / "mine.py").write_text("from ..shared import factor\n")
    assert load(package / "deep" / "mine.py").factor == 3


def test_a_file_finds_its_neighbours_and_takes_no_other_modules_name(tmp_path, monkeypatch):
    import json
    import sys

    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour_of_json.py").write_text("factor = 5\n")
    (tmp_path / "json.py").write_text("from neighbour_of_json import factor\n")
    assert load(tmp_path / "json.py").factor == 5
    assert sys.modules["json"] is json


@pytest.mark.parametrize(("returned", "count"), [(None, 1), ("x", 1), ((), 1), ([1, 2], 2), ({"y": 1}, 1)])
def test_what_is_returned_is_a_tensor_or_as_many_as_the_region_returns(returned, count):
    with pytest.raises(WrongOutputError, match="it returned"):
        as_outputs(returned, count)
