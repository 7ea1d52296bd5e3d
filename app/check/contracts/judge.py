"""Contracts and what was answered -> findings, what could not be judged, and a report's rows. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet

from app.analysis.generated_code import diff_of
from app.check.contracts.lock import Entry, Lock
from app.check.contracts.model import Answer, Asked, Contract, Unanswered
from app.check.contracts.wording import Change, Verbs, counted, number, public, then_and_now
from app.check.finding import Finding, Unmeasured, digest
from app.check.subject import Subject
from app.objects.check import ContractFigures, ContractOutcome, ContractRow
from app.objects.region import SlimRegion

CHECK: Literal["contract"] = "contract"
UNCOUNTED = "a library call's operands are not known, so its bytes are not counted"
UNSEEN = "graph breaks are seen in a module that has a matrix product, a convolution or attention, and this has none"
ACTION = "Look at the two generated sources; mend the code, or accept the change with `tritonworthy check --accept`"


@dataclass(frozen=True, slots=True)
class JudgedContract:
    """What became of a contract. findings, unmeasured: of all that it is about together."""

    contract: Contract
    subject: Subject
    findings: tuple[Finding, ...]
    unmeasured: tuple[Unmeasured, ...]
    rows: tuple[ContractRow, ...]


@dataclass(frozen=True, slots=True)
class _Limit:
    """One of a contract's limits. allowed: in words, None where the contract sets none; figure: an answer's or an
    accepted entry's, None where it is not known; words: of a figure; short: where they follow another's."""

    key: str
    allowed: Callable[[Contract], str | None]
    exceeded: Callable[[Contract, float], bool]
    figure: Callable[[Answer], float | None]
    was: Callable[[Entry], float | None]
    words: Callable[[float], str]
    short: Callable[[float], str]
    verbs: Verbs
    unknown: str = ""


def _most(figure: float, limit: float | None) -> bool:
    return limit is not None and figure > limit


LIMITS: tuple[_Limit, ...] = (
    _Limit(
        "max_kernels",
        lambda c: None if c.max_kernels is None else f"at most {counted(c.max_kernels, 'kernel')} allowed",
        lambda c, n: _most(n, c.max_kernels),
        lambda a: a.kernels,
        lambda e: e.kernels,
        lambda n: counted(int(n), "kernel"),
        lambda n: number(int(n)),
        Verbs("was", "is", "is now"),
    ),
    _Limit(
        "max_bytes_over_minimum",
        lambda c: None if (most := c.max_bytes_over_minimum) is None else f"at most {most:g} times allowed",
        lambda c, n: _most(n, c.max_bytes_over_minimum),
        lambda a: a.bytes_over_minimum,
        lambda e: e.bytes_over_minimum,
        lambda n: f"{n:.2f} times the bytes of one kernel",
        lambda n: f"{n:.2f} times",
        Verbs("moved", "moves", "now moves"),
        UNCOUNTED,
    ),
    _Limit(
        "no_extern",
        lambda c: "none is allowed" if c.no_extern else None,
        lambda c, n: c.no_extern and n > 0,
        lambda a: len(a.externs),
        lambda e: e.externs,
        lambda n: counted(int(n), "library call"),
        lambda n: number(int(n)),
        Verbs("made", "makes", "now makes"),
    ),
    _Limit(
        "no_graph_break",
        lambda c: "none is allowed" if c.no_graph_break else None,
        lambda c, n: c.no_graph_break and n > 0,
        lambda a: a.graph_breaks,
        lambda e: e.graph_breaks,
        lambda n: counted(int(n), "graph break"),
        lambda n: number(int(n)),
        Verbs("had", "has", "now has"),
        UNSEEN,
    ),
    _Limit(
        "recompiles",
        lambda c: None if c.recompiles is None else f"at most {counted(c.recompiles, 'recompile')} allowed",
        lambda c, n: _most(n, c.recompiles),
        lambda a: a.recompiles,
        lambda e: e.recompiles,
        lambda n: counted(int(n), "recompile"),
        lambda n: number(int(n)),
        Verbs("had", "has", "now has"),
    ),
)


def judge_contract(asked: Asked, lock: Lock) -> JudgedContract:
    """A contract held to its limits, beside what was accepted before."""
    contract = asked.contract
    findings: list[Finding] = []
    unmeasured: list[Unmeasured] = []
    rows: list[ContractRow] = []
    for said in asked.answers:
        if isinstance(said, Unanswered):
            unmeasured.append(_unmeasured(contract, said.of, said.reason))
            rows.append(_row(contract, said, lock.entry(contract, said.of), "unmeasured", asked))
            continue
        was = lock.entry(contract, said.of)
        broken = [finding for limit in LIMITS if (finding := _broken(contract, limit, said, was))]
        unknown = [
            _unmeasured(contract, said.of, limit.unknown)
            for limit in LIMITS
            if limit.allowed(contract) is not None and limit.figure(said) is None
        ]
        findings += broken
        unmeasured += unknown
        outcome: ContractOutcome = "broken" if broken else "unmeasured" if unknown else "kept"
        rows.append(_row(contract, said, was, outcome, asked))
    device = next((a.device for a in asked.answers if isinstance(a, Answer)), None)
    regions: list[SlimRegion] = [{"name": said.of} for said in asked.answers]
    subject = Subject(contract.name, CHECK, {"device": device, "regions": regions})
    return JudgedContract(contract, subject, tuple(findings), tuple(unmeasured), tuple(rows))


def torch_refused(contract: Contract, torch: str) -> str:
    """Why a contract is not judged under this torch; "" where it is."""
    if not contract.torch or SpecifierSet(contract.torch).contains(torch, prereleases=True):
        return ""
    return f"the contract is for torch {contract.torch}, and torch {public(torch)} was to be asked"


def _broken(contract: Contract, limit: _Limit, now: Answer, was: Entry | None) -> Finding | None:
    figure = limit.figure(now)
    allowed = limit.allowed(contract)
    if allowed is None or figure is None or not limit.exceeded(contract, figure):
        return None
    before = limit.was(was) if was is not None else None
    words = limit.words(before) if before is not None else ""
    said = then_and_now(contract, was, now, Change(words, limit.words(figure), limit.short(figure), limit.verbs))
    names = f": {', '.join(sorted(set(now.externs)))}" if limit.key == "no_extern" else ""
    place = digest(contract.assertion, limit.key, now.of)
    return Finding(
        assertion=contract.assertion,
        check=CHECK,
        level=contract.level,
        subject=contract.name,
        message=f"{said}{names}; {allowed}",
        region=now.of,
        region_id=now.region_id,
        source=(now.excess_place or now.place) if limit.key == "max_kernels" else now.place,
        action=ACTION if was is not None else "",
        evidence="predicted",
        new=None if before is None else not limit.exceeded(contract, before),
        fingerprints={"place": place, "region": digest(contract.assertion, limit.key, now.of, now.text)},
    )


def _unmeasured(contract: Contract, of: str, reason: str) -> Unmeasured:
    return Unmeasured(contract.assertion, contract.level, contract.name, of, reason)


def _row(
    contract: Contract, said: Answer | Unanswered, was: Entry | None, outcome: ContractOutcome, asked: Asked
) -> ContractRow:
    answer = said if isinstance(said, Answer) else None
    return {
        "name": contract.name,
        "of": said.of,
        "device": answer.device if answer else None,
        "torch": answer.torch if answer else asked.torch,
        "triton": answer.triton if answer else asked.triton,
        "mode": contract.mode,
        "outcome": outcome,
        "kernels": answer.kernels if answer else None,
        "bytes_over_minimum": _rounded(answer.bytes_over_minimum) if answer else None,
        "externs": len(answer.externs) if answer else None,
        "graph_breaks": answer.graph_breaks if answer else None,
        "recompiles": answer.recompiles if answer else None,
        "was": _was(was) if was else None,
        "diff": _diff(was, answer) if was and answer else "",
    }


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


def _was(was: Entry) -> ContractFigures:
    return {
        "device": was.device,
        "torch": was.torch,
        "triton": was.triton,
        "mode": was.mode,
        "kernels": was.kernels,
        "bytes_over_minimum": was.bytes_over_minimum,
        "externs": was.externs,
        "graph_breaks": was.graph_breaks,
        "recompiles": was.recompiles,
    }


def _diff(was: Entry, now: Answer) -> str:
    same = public(was.torch) == public(now.torch)
    names = ("accepted", "now") if same else (f"torch {public(was.torch)}", f"torch {public(now.torch)}")
    return diff_of(was.kernel_code, now.code, *names)


def contract_rows(judged: Sequence[JudgedContract]) -> list[ContractRow]:
    """Of all contracts, in the order of the configuration."""
    return [row for each in judged for row in each.rows]
