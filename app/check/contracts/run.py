"""The contracts of a check, asked one after the other and held to what was accepted; the lock written where asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.analysis.own_oracle import start_oracle
from app.check.contracts.ask import Named, Said, ask
from app.check.contracts.judge import JudgedContract, judge_contract, torch_refused
from app.check.contracts.lock import FILE, Lock, accepted, read_lock, write_lock
from app.check.contracts.model import Asked, Unanswered
from app.check.subject import Subject
from profiler.oracle.cache import versions
from profiler.oracle.environment import Environment
from profiler.oracle.process import Oracle

Say = Callable[[Mapping[str, object]], None]

OFF = "Inductor is not asked here: TRITONWORTHY_ORACLE is off"


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """folder: of the configuration, where files are named and the lock lies; None on a server, which has neither.

    accept: what is answered becomes the lock. environment: whose torch is asked, None for this process's own.
    """

    folder: Path | None = None
    accept: bool = False
    environment: Environment | None = None

    @property
    def lock(self) -> Path | None:
        """The lock's file."""
        return None if self.folder is None else self.folder / FILE


ON_A_SERVER = ContractOptions()


def judge_contracts(
    named: Sequence[Named], options: ContractOptions, device: str | None, subjects: Sequence[Subject], lock: Lock,
    say: Say, cancelled: Callable[[], bool],
) -> list[JudgedContract]:  # fmt: skip
    """Each asked about in turn. device: the check's; subjects: what patterns look at; lock: what was accepted before.

    Raises LockUnwritableError.
    """
    known = versions()
    if options.environment is not None:
        known = {"torch": options.environment.torch, "triton": options.environment.triton}
    asked = []
    with start_oracle(options.environment) as oracle:
        for each in named:
            if cancelled():
                break
            say({"phase": "measuring", "message": f"{each.contract.name}: torch.compile without a GPU"})
            answers = _answers(each, oracle, device, options.folder, subjects, known["torch"])
            asked.append(Asked(each.contract, tuple(answers), known["torch"], known["triton"]))
    if options.accept and options.lock is not None:
        write_lock(options.lock, accepted(asked, lock))
    return [judge_contract(each, lock) for each in asked]


def contract_lock(options: ContractOptions) -> Lock:
    """What was accepted before. Raises ConfigError, OSError."""
    return read_lock(options.lock) if options.lock is not None else Lock()


def _answers(
    named: Named, oracle: Oracle, device: str | None, folder: Path | None, subjects: Sequence[Subject], torch: str
) -> list[Said]:
    contract = named.contract
    if refused := torch_refused(contract, torch):
        return [Unanswered(contract.about, refused)]
    if folder is None and os.environ.get("TRITONWORTHY_ORACLE") == "off":
        return [Unanswered(contract.about, OFF)]
    return ask(named, oracle, device, folder, subjects)
