"""What became of a contract: one finding a limit, and words that say what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app import __version__
from app.check.contracts.judge import judge_contract, torch_refused
from app.check.contracts.lock import Entry, Lock, entry_of
from app.check.contracts.model import Answer, Asked, Contract, Unanswered
from tests.app.check.contracts.answers import NORM, ONE, answer

TWO = answer(kernels=2)


def lock_of(was: Answer | None, contract: Contract = NORM, **changed: Any) -> Lock:
    if was is None:
        return Lock()
    entry = entry_of(contract, was)
    fields = {name: getattr(entry, name) for name in Entry.__struct_fields__}
    return Lock(contracts=(Entry(**{**fields, **changed}),))


@pytest.mark.parametrize(
    ("was", "changed", "now", "said"),
    [
        (None, {}, TWO, "RMSNorm is two kernels under torch 2.13.0; at most one kernel allowed"),
        (ONE, {}, answer(kernels=3, torch="2.14.0"),
         "RMSNorm was one kernel under torch 2.13.0 and is now three under 2.14.0; at most one kernel allowed"),
        (ONE, {}, answer(kernels=2, triton="3.8.0"),
         "RMSNorm was one kernel under Triton 3.7.1 and is now two under 3.8.0; at most one kernel allowed"),
        (ONE, {}, answer(kernels=2, text="another\n"),
         "RMSNorm was one kernel and is now two since the text was edited (under torch 2.13.0); at most one kernel"
         " allowed"),
        (ONE, {}, answer(kernels=2, text="another\n", torch="2.14.0"),
         "RMSNorm was one kernel under torch 2.13.0 and is now two under 2.14.0, the text edited as well; at most one"
         " kernel allowed"),
        (ONE, {}, answer(kernels=2, device="NVIDIA A100"),
         "RMSNorm was one kernel on NVIDIA H200 and is now two on NVIDIA A100 (under torch 2.13.0); at most one kernel"
         " allowed"),
        (ONE, {}, answer(kernels=2, training=True),
         "RMSNorm was one kernel without gradients and is now two in training (under torch 2.13.0); at most one kernel"
         " allowed"),
        (ONE, {"tritonworthy": "0.0.1"}, TWO,
         f"RMSNorm was one kernel as Tritonworthy 0.0.1 asks and is now two as {__version__} does (under torch 2.13.0);"
         " at most one kernel allowed"),
        (TWO, {}, TWO,
         "RMSNorm is two kernels under torch 2.13.0, as when it was accepted; at most one kernel allowed"),
        (ONE, {}, answer(kernels=11, torch="2.13.0+cu130"), "RMSNorm was one kernel and is now 11 under torch 2.13.0;"
         " at most one kernel allowed"),
    ],
)  # fmt: skip
def test_a_broken_limit_says_what_it_was_and_since_what(
    was: Answer | None, changed: dict[str, Any], now: Answer, said: str
) -> None:
    judged = judge_contract(Asked(NORM, (now,)), lock_of(was, **changed))
    (finding,) = judged.findings
    assert finding.message == said
    assert finding.source == "norm.txt:4"


def test_each_broken_limit_is_a_finding_and_a_kept_one_none() -> None:
    contract = replace(
        NORM, max_kernels=4, max_bytes_over_minimum=1.2, no_extern=True, no_graph_break=True, recompiles=1
    )
    now = answer(kernels=4, bytes_moved=1500, externs=("mm", "mm"), graph_breaks=1, recompiles=2)
    judged = judge_contract(Asked(contract, (now,)), lock_of(ONE, contract))
    assert [f.message.partition(";")[0] for f in judged.findings] == [
        "RMSNorm moved 1.00 times the bytes of one kernel and now moves 1.50 times under torch 2.13.0",
        "RMSNorm made no library calls and now makes two under torch 2.13.0: mm",
        "RMSNorm had no graph breaks and now has one under torch 2.13.0",
        "RMSNorm has two recompiles under torch 2.13.0",
    ]
    assert len({f.fingerprints["place"] for f in judged.findings}) == 4
    assert [f.new for f in judged.findings] == [True, True, True, None]
    assert judged.rows[0]["outcome"] == "broken"


def test_a_kept_contract_has_its_figures_and_the_difference_of_the_sources() -> None:
    judged = judge_contract(Asked(NORM, (answer(torch="2.14.0", code="another kernel\n"),)), lock_of(ONE))
    assert (judged.findings, judged.unmeasured) == ((), ())
    (row,) = judged.rows
    assert (row["outcome"], row["kernels"], row["bytes_over_minimum"]) == ("kept", 1, 1.0)
    assert row["was"] is not None
    assert row["was"]["torch"] == "2.13.0+cpu"
    assert row["diff"].splitlines() == [
        "--- torch 2.13.0", "+++ torch 2.14.0", "@@ -1 +1 @@", "-one kernel", "+another kernel"
    ]  # fmt: skip


def test_bytes_that_are_not_known_are_no_verdict_on_them() -> None:
    judged = judge_contract(Asked(replace(NORM, max_bytes_over_minimum=1.0), (answer(bytes_moved=None),)), Lock())
    assert judged.findings == ()
    assert [u.reason for u in judged.unmeasured] == [
        "a library call's operands are not known, so its bytes are not counted"
    ]
    assert judged.rows[0]["outcome"] == "unmeasured"


def test_what_was_not_answered_is_unmeasured_with_the_reason() -> None:
    judged = judge_contract(
        Asked(NORM, (Unanswered("norm", "no answer within 60 s"),), "2.13.0", "3.7.1"), lock_of(ONE)
    )
    assert [(u.assertion, u.reason) for u in judged.unmeasured] == [("contract:RMSNorm", "no answer within 60 s")]
    assert (judged.rows[0]["outcome"], judged.rows[0]["kernels"], judged.rows[0]["torch"]) == (
        "unmeasured",
        None,
        "2.13.0",
    )


def test_each_region_of_a_pattern_is_held_to_its_own_answer() -> None:
    contract = Contract("norms", pattern="*", max_kernels=1)
    asked = Asked(contract, (answer(of="a"), answer(of="b", kernels=2)))
    judged = judge_contract(asked, lock_of(answer(of="b"), contract))
    (finding,) = judged.findings
    assert finding.message.startswith("b was one kernel and is now two")
    assert [(row["of"], row["outcome"]) for row in judged.rows] == [("a", "kept"), ("b", "broken")]


@pytest.mark.parametrize(
    ("specifier", "torch", "refused"),
    [
        ("", "2.13.0+cpu", False),
        ("==2.13.*", "2.13.0+cpu", False),
        (">=2.13,<2.14", "2.14.0", True),
        (">=2.14", "2.15.0.dev20270101", False),
        ("==2.13.0", "2.13.0+cu130", False),
    ],
)
def test_a_contract_for_another_torch_is_not_judged(specifier: str, torch: str, refused: bool) -> None:
    reason = torch_refused(replace(NORM, torch=specifier), torch)
    assert bool(reason) is refused
    if refused:
        assert reason == "the contract is for torch >=2.13,<2.14, and torch 2.14.0 was to be asked"
