from __future__ import annotations

import pytest

import app.accuracy.case
from app.accuracy.labels import Label
from app.accuracy.policies import POLICIES, follow
from app.thresholds import DEFAULTS
from tests.app.accuracy.made import candidate, case

LABEL = Label("made", "library", ("triton",), 0.05, "time")
ALL = (
    candidate("eager", 100), candidate("compile", 60), candidate("compile-max-autotune", 50),
    candidate("library:slow.call", 80), candidate("library:quick.call", 70),
    candidate("triton:generated", 30, best_other=50), candidate("triton:written", 40, best_other=50),
)  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "chosen", "regret", "right"),
    [
        ("the decision rule, had it known the measurement", "triton:generated", 1.0, True),
        ("always eager", "eager", 100 / 30, False),
        ("always torch.compile", "compile", 60 / 30, False),
        ("always max-autotune", "compile-max-autotune", 50 / 30, False),
        ("always Triton", "triton:written", 40 / 30, True),  # nobody who writes one measures the generated first
        ("published label", "library:quick.call", 70 / 30, False),
        ("published label, or what it accepts", "triton:generated", 1.0, True),
    ],
)
def test_each_policy_takes_its_own_candidate(policy: str, chosen: str, regret: float, right: bool) -> None:
    followed = follow(case(*ALL, label=LABEL), POLICIES[policy])
    assert followed is not None
    assert (followed.candidate, followed.right) == (chosen, right)
    assert followed.regret == pytest.approx(regret)


def test_the_threshold_of_the_rule_is_the_one_that_measured_figures_are_judged_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = case(
        candidate("eager", 100),
        candidate("compile", 50, best_other=40),
        candidate("triton:generated", 40, best_other=50),
    )
    assert measured.decided({"tool": "skip"}).winner == "triton:generated"  # 25 % faster than torch.compile
    monkeypatch.setattr(app.accuracy.case, "DEFAULTS", DEFAULTS.from_mapping({"win_margin": 0.5}))
    assert measured.decided({"tool": "skip"}).winner == "compile"


def test_what_was_not_measured_falls_back_to_less() -> None:
    bare = case(candidate("eager", 100), candidate("compile", 50))
    for policy, chosen in (("always max-autotune", "compile"), ("always Triton", "eager")):
        followed = follow(bare, POLICIES[policy])
        assert followed is not None and followed.candidate == chosen


def test_a_region_without_a_label_has_no_labelled_policy() -> None:
    assert follow(case(*ALL), POLICIES["published label"]) is None
