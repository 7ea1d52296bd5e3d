"""What libraries cover, as data: operations, the calls for them with conditions, and the Cover that a region gets.

Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

COMPILE = "compile"
"""The candidate of an Entry that says when torch.compile covers an operation: no library call."""

VERDICTS: Mapping[str, str] = {
    "Y": "a library covers it",
    "Y*": "a library covers it under the conditions",
    "C": "torch.compile covers it, a library is optional",
    "N": "nothing to call",
    "N*": "nothing to call; torch.compile under the conditions",
    "skip": "torch's own call is what runs already",
}
"""What the catalogue says of an operation written the naive way."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What conditions look at: one match in one region on one host.

    dtype: of the match's main operand. sizes: role -> shape of the tensor that plays it; dtypes, strides: the same.
    features: Host.features. capability: of the host's GPU, None where there is none or it is not CUDA; processors: its
    SMs, None where the device table has no such GPU. varies: the region's sizes are symbols. arch: "sm_90" or "gfx950"
    of that table, "" where it has no such GPU.
    """

    kind: str
    by_hand: bool
    dtype: str
    roles: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    requires_grad: bool
    capability: tuple[int, int] | None
    features: frozenset[str]
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    processors: int | None = None
    varies: bool = False
    arch: str = ""

    def size(self, role: str, dim: int = -1) -> int | None:
        """One size of the tensor that plays the role; None where it is not known."""
        shape = self.sizes.get(role, ())
        return shape[dim] if -len(shape) <= dim < len(shape) else None


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of an entry. test gives None where it cannot be known here."""

    text: str
    test: Callable[[Facts], bool | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the catalogue: an operation as people write it, and the verdict on that form.

    kinds: of the matches by which a region's graph shows it; where: what has to hold as well, for a row that shares
    its kind with another. inexpressible: why a region's text cannot say it, "" where it can.
    """

    row: int
    name: str
    verdict: str
    kinds: frozenset[str] = frozenset()
    inexpressible: str = ""
    note: str = ""
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One call and when it covers a pattern.

    candidate: "library:PACKAGE.CALL", or `COMPILE`. package: import name. kinds: of matches that it covers; rows: of
    the catalogue that it answers. call is shown to the user with the region's own names: {x}, {weight}, ... are roles,
    {b:turned} is one transposed.
    adapter names the rewrite in `kernels.libraries.adapters.rewrite` that lets it be measured; "" where there is none,
    and unmeasured says why. feature: of the running torch. since: version of the package. gives_up: what one loses.
    forward_only, arch (least compute capability), dtypes (of the main operand) and conditions (sizes, layout, the rest)
    have to hold. targets: aten operations that are this call already; takes_dtype: it converts as it reads. alone: it
    counts only where the region is nothing else, since torch.compile fuses it with its neighbours. gpu_only: torch's
    CPU does not have it; of other packages that is taken for granted. narrow: it gives its result in f32 whatever it
    reads, and so takes a loss's logits as they are before the text widens them. loses_digits:
    its result is of fewer digits than the region's own, so it is shown and measured, and never advised unasked.
    repeats: dtypes of attention in which the call is given the heads of k and v once for each of q, where those are
    fewer: none of its fast kernels takes them as they are.
    """

    candidate: str
    package: str
    kinds: frozenset[str]
    call: str
    conditions: tuple[Condition, ...] = ()
    rows: tuple[int, ...] = ()
    arch: tuple[int, int] | None = None
    dtypes: tuple[str, ...] = ()
    forward_only: bool = False
    adapter: str = ""
    unmeasured: str = ""
    feature: str = ""
    since: str = ""
    gives_up: str = ""
    note: str = ""
    source: str = ""
    targets: frozenset[str] = frozenset()
    takes_dtype: bool = False
    alone: bool = False
    gpu_only: bool = False
    narrow: bool = False
    loses_digits: bool = False
    repeats: tuple[str, ...] = ()

    @property
    def all_conditions(self) -> tuple[Condition, ...]:
        """GPU, dtype and direction as conditions, before the rest."""
        required = [] if self.arch is None else [capability_at_least(*self.arch)]
        required += [dtype_among(*self.dtypes)] if self.dtypes else []
        required += [FORWARD_ONLY] if self.forward_only else []
        return (*required, *self.conditions)


@dataclass(frozen=True, slots=True)
class Cover:
    """What one library call is to one region.

    covers: no condition fails. conditions: (text, holds); None is unknown. already: the region is this call as it
    stands. adapter: the rewrite by which it is measured, None where there is none here. whole: nothing else computes.
    install: the command that gets it where it is not installed, "" where it is. version: of the package here, "" where
    it is not known. gpu_only: it cannot run without a GPU. since, gives_up: as in Entry. density: share of attention's
    scores that it computes, None where it has no say in that. loses_digits: as in Entry.
    """

    candidate: str
    package: str
    call: str
    covers: bool
    conditions: tuple[tuple[str, bool | None], ...]
    installed: bool
    already: bool
    kind: str
    note: str = ""
    adapter: str | None = None
    operations: frozenset[str] = field(default=frozenset())
    whole: bool = False
    source: str = ""
    install: str = ""
    since: str = ""
    gives_up: str = ""
    version: str = ""
    gpu_only: bool = False
    verdict: str = ""
    density: float | None = None
    loses_digits: bool = False

    @property
    def missing(self) -> str:
        """Why it cannot be called here: the package, or the version with the call; "" where it can."""
        if self.installed:
            return ""
        if not self.version:
            return f"{self.package} is not installed here"
        least = least_version(self.since)
        if least and _numbers(self.version) < _numbers(least):
            return f"needs {self.package} {least} or newer, and this host has {self.version}"
        return f"{self.package} {self.version} of this host does not have it"

    @property
    def said(self) -> str:
        """In one line: covered by whom, and how to get it."""
        name = "torch.compile" if self.candidate == COMPILE else self.candidate.removeprefix("library:")
        if not self.covers:
            failing = next(text for text, holds in self.conditions if holds is False)
            return f"not covered by {name}: needs {failing}"
        missing = self.missing.replace(f"{self.package} is not", "not")
        return f"covered by {name}" + (f", {missing}: {self.install}" if missing else "")


def least_version(since: str) -> str:
    """The version in an entry's `since`: "2.4" of "2.4, one kernel since 2.9", "" of "always"."""
    number = re.match(r"\d+(\.\d+)*", since)
    return number.group() if number else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in least_version(version).split(".") if n)


def capability_at_least(major: int, minor: int = 0) -> Condition:
    """The GPU's compute capability."""
    return Condition(
        f"NVIDIA GPU of compute capability {major}.{minor} or newer",
        lambda f: None if f.capability is None else f.capability >= (major, minor),
    )


def capability_among(*capabilities: tuple[int, int]) -> Condition:
    """Exactly these compute capabilities: code for one architecture."""
    named = " or ".join(f"{major}.{minor}" for major, minor in capabilities)
    return Condition(
        f"NVIDIA GPU of compute capability {named}",
        lambda f: None if f.capability is None else f.capability in capabilities,
    )


def dtype_among(*dtypes: str) -> Condition:
    """The dtype of the main operand."""
    return Condition(f"dtype {' or '.join(dtypes)}", lambda f: f.dtype in dtypes)


FORWARD_ONLY = Condition("forward only", lambda f: not f.requires_grad)
