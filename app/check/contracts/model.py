"""A contract of the configuration, and what Inductor answers to what it is about. Data alone."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from app.objects.check import Severity as Level

TEXT = "text"
"""What a contract is about whose region stands in the configuration itself."""


@dataclass(frozen=True, slots=True)
class Contract:
    """One table `[[contracts]]`. Of region, module and pattern exactly one is given.

    region: a file relative to the configuration's folder, or a region's text; module: FILE.py:FUNCTION; pattern: on
    the names and keys of the traces' regions. max_kernels: launches of one call, those of libraries included.
    recompiles: most compiles after the first over the sizes that the region lists. training: forward and backward, or
    the forward alone, whatever the text says. torch: a version specifier; under another torch it is not judged.
    """

    name: str
    level: Level = "error"
    region: str = ""
    module: str = ""
    pattern: str = ""
    max_kernels: int | None = None
    max_bytes_over_minimum: float | None = None
    no_extern: bool = False
    no_graph_break: bool = False
    recompiles: int | None = None
    training: bool | None = None
    mode: str = "default"
    device: str | None = None
    torch: str = ""

    @property
    def assertion(self) -> str:
        """As a report calls it."""
        return f"contract:{self.name}"

    @property
    def about(self) -> str:
        """What it is about, as it stands in the configuration."""
        return TEXT if "\n" in self.region else self.region or self.module or self.pattern

    @property
    def options(self) -> dict[str, Any]:
        """What is not as by default, for reports."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        told |= {"region": TEXT} if "\n" in self.region else {}
        return {key: value for key, value in told.items() if key not in ("name", "level")}


@dataclass(frozen=True, slots=True)
class Answer:
    """What torch.compile makes of one region, or of all regions of a module's step together.

    of: the region's or module's name. text: canonical, of all its regions. kernels: launches, those of libraries
    included. bytes_moved: of all of them, None where a library's operands are not known; minimum_bytes: of one kernel
    that did all. externs: a name for each library call. graph_breaks: None where they are not seen. recompiles: None
    where it was not asked. code: the generated kernels as one text, library calls as comments. place, excess_place: the
    line that it begins at, and that of the first kernel beyond `max_kernels`, as a trace's stacks tell lines; "" where
    unknown. has_product: a matrix product, a convolution or attention.
    """

    of: str
    text: str
    device: str
    mode: str
    training: bool
    torch: str
    triton: str
    kernels: int
    bytes_moved: int | None
    minimum_bytes: int
    externs: tuple[str, ...] = ()
    graph_breaks: int | None = 0
    recompiles: int | None = None
    code: str = ""
    place: str = ""
    excess_place: str = ""
    region_id: str | None = None
    has_product: bool = False

    @property
    def bytes_over_minimum(self) -> float | None:
        """How many times the least bytes are moved; None where that is not known."""
        if self.bytes_moved is None or not self.minimum_bytes:
            return None
        return self.bytes_moved / self.minimum_bytes


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing to judge a contract by, and why."""

    of: str
    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A contract with what was answered to it. torch, triton: that were asked."""

    contract: Contract
    answers: tuple[Answer | Unanswered, ...] = field(default=())
    torch: str = ""
    triton: str = ""
