"""What is told after `--accept`: what is new, changed, as before or gone, and what other configurations have."""

from __future__ import annotations

from app.check.contracts.acceptance import acceptance
from app.check.contracts.lock import Lock, accepted
from app.check.contracts.model import Asked, Contract
from tests.app.check.contracts.answers import NORM, ONE, answer

PATTERN = Contract("norms", pattern="N*", max_kernels=1)


def test_new_changed_as_before_and_gone_are_told_by_name() -> None:
    before = accepted([Asked(NORM, (ONE,)), Asked(PATTERN, (answer(of="a"), answer(of="b")))], Lock())
    after = accepted([Asked(NORM, (answer(kernels=2),)), Asked(PATTERN, (answer(of="a"), answer(of="c")))], before)
    assert acceptance(before, after, [NORM, PATTERN]) == [
        "accepted: 1 new (norms: c), 1 changed (RMSNorm), 1 as before (norms: a), 1 gone (norms: b)"
    ]


def test_what_the_configuration_does_not_name_is_told_and_a_contract_that_is_off_is_named() -> None:
    before = accepted([Asked(NORM, (ONE,)), Asked(PATTERN, (answer(of="a"),))], Lock())
    off = Contract("RMSNorm", "off", region="norm.txt", max_kernels=1)
    assert acceptance(before, before, [off]) == [
        "accepted: 1 as before (RMSNorm)",
        "left in the lock, and not in this configuration: norms of N*",
    ]


def test_names_of_a_trace_cannot_fill_or_steer_the_terminal() -> None:
    lock = accepted([Asked(PATTERN, tuple(answer(of=f"\x1b[2J{n}") for n in range(30)))], Lock())
    (line,) = acceptance(Lock(), lock, [PATTERN])
    assert line.isprintable() and line.endswith("[2J9, 20 more)")
    assert line.count("norms: ") == 10
