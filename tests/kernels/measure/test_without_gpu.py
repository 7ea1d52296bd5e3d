"""What a host without a GPU says: which candidates were checked, in which types, and which verdict was not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernels.measure.model import Validation
from kernels.measure.plan import Plan
from kernels.measure.processes.processes import ForkServer
from kernels.measure.records import Record, advised_unchecked, judge_record
from kernels.measure.session import Limits, Modules, ValidationRequest, validate
from tests.kernels.measure.test_records import ANSWER
from tests.kernels.ops.trained_regions import TRAINED

PRODUCT = "x: {0}[48, 40]\nw: {0}[40, 48]\nreturn x @ w"
REGISTRY = "tests.kernels.measure.candidate.products"


def validated(fork_server: ForkServer, dtype: str, advised: str = "triton") -> Validation:
    request = ValidationRequest(
        PRODUCT.format(dtype), device="cpu", limits=Limits(prepare_s=60), advice_before={"tool": advised}
    )
    return validate(request, fork_server=fork_server, modules=Modules(registry=REGISTRY))


@pytest.fixture(scope="module")
def in_bf16(fork_server: ForkServer) -> Validation:
    return validated(fork_server, "bf16")


def test_a_bf16_product_is_checked_in_a_type_that_the_interpreter_multiplies_rightly(in_bf16: Validation) -> None:
    by_name = {c.name: c for c in in_bf16.candidates}
    right = by_name["triton:right"]
    assert right.status == "correct", right.message
    assert "interpreter on the CPU at reduced sizes, in f32; not in bf16, whose matrix products" in right.message
    assert by_name["triton:scaled"].status == "mismatch"
    assert by_name["eager"].message == "checked on the CPU at reduced sizes, in f32 and bf16"


def test_a_kernel_that_multiplies_in_bf16_whatever_it_is_given_is_not_called_wrong(in_bf16: Validation) -> None:
    (narrow,) = (c for c in in_bf16.candidates if c.name == "triton:narrow")
    assert narrow.status == "not_run"
    assert narrow.message.startswith("not checked: Triton's interpreter cannot run it in bf16")
    assert narrow.error_vs_eager is None


def test_other_types_are_checked_as_they_are(fork_server: ForkServer) -> None:
    (right,) = (c for c in validated(fork_server, "f16").candidates if c.name == "triton:right")
    assert right.status == "correct", right.message
    assert right.message.endswith("interpreter on the CPU at reduced sizes, in f16")


def test_a_verdict_says_when_nothing_of_what_is_advised_was_checked(
    fork_server: ForkServer, in_bf16: Validation
) -> None:
    assert in_bf16.reason.endswith("none was wanted")
    assert validated(fork_server, "bf16", "library").reason.endswith(
        "; what is advised, library, was not checked either"
    )


@pytest.mark.parametrize(
    ("tool", "said"),
    [("skip", ""), ("triton", "; what is advised, triton, was not checked either: triton:a no such tile"),
     ("compile", "; what is advised, compile, was not checked either: compile needs a GPU")],
)  # fmt: skip
def test_the_reason_is_the_candidates_own(tool: str, said: str) -> None:
    records = [Record("eager", "eager", status="correct"), Record("triton:a", "triton", status="error",
                      message="no such tile"),
               Record("compile", "compile", message="needs a GPU")]  # fmt: skip
    assert advised_unchecked(records, {"tool": tool}) == said
    assert advised_unchecked(records, None) == ""


NEWEST = ("bags of weighted rows", "pools in a block", "grouped products", "sums of segments", "dropout",
          "a recurrence of gates")  # fmt: skip


@pytest.mark.parametrize("name", NEWEST)
def test_a_kernel_in_the_place_of_a_part_is_checked_with_its_gradients(fork_server: ForkServer, name: str) -> None:
    candidate, text = TRAINED[name]
    request = ValidationRequest(text, device="cpu", limits=Limits(prepare_s=120), candidates=("eager", candidate))
    by_name = {c.name: c for c in validate(request, fork_server=fork_server).candidates}
    assert by_name[candidate].status == "correct", by_name[candidate].message
    assert "checked in Triton" in by_name[candidate].message
    assert by_name["eager"].status == "correct"


def test_the_types_are_those_of_the_tasks_that_ran() -> None:
    answer = replace(ANSWER, device=None, reduced="x: bf16[8]\nreturn x", reduced_wide="x: f32[8]\nreturn x",
                     software={"triton": "9.9"})  # fmt: skip
    plan = Plan(answer, [{}], [1.0])
    assert plan.checked_how(Record("a", "library")) == "checked on the CPU at reduced sizes, in bf16"
    half = Record("a", "triton", unable=["", "bf16, of which it knows nothing"])
    assert plan.checked_how(half) == (
        "checked in Triton 9.9's interpreter on the CPU at reduced sizes, in f32; "
        "not in bf16, of which it knows nothing"
    )


def test_without_any_task_that_could_be_run_nothing_is_correct() -> None:
    record = Record("a", "triton", cases=[[], []], mutated=[[], []], unable=["bf16", "bf16"])
    judge_record(record, None, None, ["", ""])
    assert record.status == "not_run"


@pytest.mark.parametrize("line", ["x > 100.0", "torch.isnan(x)", "(x < 100.0).to(torch.int32)"])
def test_a_right_kernel_whose_integers_are_all_alike_is_not_told_to_compute_nothing(
    fork_server: ForkServer, line: str
) -> None:
    """Launch ablation puts one number where a silent kernel wrote no integer, and that may be the right one."""
    request = ValidationRequest(f"x: f32[64, 64]\nreturn {line}", device="cpu", limits=Limits(prepare_s=60))
    (made,) = (c for c in validate(request, fork_server=fork_server).candidates if c.name == "triton:generated")
    assert made.status == "correct", made.message
