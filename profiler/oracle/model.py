"""What the oracle says, as data. Torch-free: advice, pages and the API read it without importing torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.oracle.kernel_traits import KernelTraits, read_traits

COMPILED = "compiled for this GPU"
WITHOUT_GPU = "from Inductor, without a GPU"
_FORMER_SPELLINGS: Mapping[str, str] = {"asked of Inductor, without the GPU": WITHOUT_GPU}

MODES = ("default", "max-autotune")
"""max-autotune is answered as "if a Triton GEMM template wins": Inductor would decide that by timing."""

POINTWISE = "pointwise"
REDUCTION = "reduction"
PERSISTENT = "persistent_reduction"
TEMPLATE = "template"
FOREACH = "foreach"
SCAN = "split_scan"
"""Kinds of Triton kernels, as torch._inductor's heuristics name them."""


def how_today(how: str) -> str:
    """How a prediction was made, in today's words; stored ones may have a former spelling."""
    return _FORMER_SPELLINGS.get(how, how)


@dataclass(frozen=True, slots=True)
class OracleKernel:
    """One Triton kernel that Inductor wrote. calls: launches of it in one call of the region.

    bytes_moved: Inductor's own count of its reads and writes, None where it gives none. operations: the aten operations
    that Inductor says went into it. source: the kernel's module, as Inductor would write it to its cache.
    stage: "forward" or "backward". lines: 1-based lines of the region's text that it computes, () where unknown.
    """

    name: str
    kind: str
    calls: int
    bytes_moved: int | None
    operations: tuple[str, ...]
    source: str
    stage: str = "forward"
    lines: tuple[int, ...] = ()

    @property
    def traits(self) -> KernelTraits:
        """What a price of the kernel needs, read off its source; read once for each text."""
        return read_traits(self.source)


Constant = bool | int | float | str | None | tuple[bool | int | float | str | None, ...]
"""A constant argument of a library call. None: not given, or a tensor that is left out. Types by their region name."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a library call reads or writes, as Inductor lays it out. shape, stride: in elements.

    dtype: as the region language spells it, "bf16"; as torch does, "uint64", where the language has no word.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call of a library: what it reads, what it writes, and the constants that change its work.

    inputs: tensors in the order of the call, those of a list one after the other. parameters: for each input the name
    of the parameter that it is passed for, by the operation's schema; its position where there is none. outputs: the
    results; what is written into, where nothing is returned. constants: (parameter, value), those that are left out by
    their defaults. A call that could not be described has no inputs and no outputs.
    """

    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    parameters: tuple[str, ...] = ()
    constants: tuple[tuple[str, Constant], ...] = ()

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    def input(self, parameter: str) -> Operand | None:
        """The tensor that is passed for a parameter: "attn_bias"; None where none is."""
        return next((o for n, o in zip(self.parameters, self.inputs, strict=True) if n == parameter), None)

    def constant(self, parameter: str, default: Constant = None) -> Constant:
        """The constant that is passed for a parameter: "is_causal"; `default` where there is none of that name."""
        return dict(self.constants).get(parameter, default)


@dataclass(frozen=True, slots=True)
class Extern:
    """A call that Inductor leaves to a library: "mm", "aten.topk". calls: how often in one call of the region.

    sites: one for each call, in the order of the program; () in answers that were kept without them.
    """

    name: str
    calls: int
    stage: str = "forward"
    sites: tuple[CallSite, ...] = ()


SDPA_REPLACED = "scaled_dot_product_attention"
"""Name of the replacement of attention written by hand."""

ATTENTION = ("aten._scaled_dot_product_", "aten.scaled_dot_product_")


def alike(name: str) -> str:
    """The name under which calls count as the same: which backend attention goes to is the device's choice."""
    if not name.startswith(ATTENTION):
        return name
    return "sdpa_backward" if name.endswith("_backward") else "sdpa"


@dataclass(frozen=True, slots=True)
class Replaced:
    """What Inductor's pattern matcher put in the place of what was written."""

    name: str
    because: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """What torch.compile makes of one region at one binding, in one mode, on one device.

    how: COMPILED or WITHOUT_GPU. binding: the sizes; symbolic: those that vary stayed symbolic. assumed: decisions that
    Inductor would make by timing. unavailable: why there is no prediction, "" where there is one; then the rest is
    empty.
    took_s: seconds that the answer took when it was made.
    """

    device: str
    mode: str
    binding: Mapping[str, int]
    training: bool
    kernels: tuple[OracleKernel, ...] = ()
    externs: tuple[Extern, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    assumed: tuple[str, ...] = ()
    symbolic: bool = False
    how: str = ""
    torch: str = ""
    triton: str = ""
    took_s: float = 0.0
    unavailable: str = ""

    @property
    def launches(self) -> int:
        """Kernels that are launched, each library call counted as one."""
        return sum(k.calls for k in self.kernels) + sum(e.calls for e in self.externs)

    @property
    def bytes_moved(self) -> int | None:
        """Bytes that the Triton kernels move, by Inductor's count; None where a kernel has none."""
        counted = [k.bytes_moved for k in self.kernels]
        if any(c is None for c in counted):
            return None
        return sum(c * k.calls for c, k in zip(counted, self.kernels, strict=True) if c is not None)

    @property
    def signature(self) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        """Kinds of kernels and names of library calls with their numbers: what two answers must agree on."""
        kinds: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for kernel in self.kernels:
            kinds[kernel.kind] += kernel.calls
        for extern in self.externs:
            names[alike(extern.name)] += extern.calls
        return tuple(sorted(kinds.items())), tuple(sorted(names.items()))


@dataclass(frozen=True, slots=True)
class Recompiles:
    """How torch.compile meets sizes that vary, in the order of `bindings`.

    served: for each binding, the number (from 0) of the graph that it runs. graphs: how many are compiled; limit: after
    how many torch.compile gives up and runs eagerly. because: why no symbolic graph could be had, "" where one could or
    none was needed. symbolic: what Inductor wrote for the latest symbolic graph.
    """

    bindings: tuple[tuple[tuple[str, int], ...], ...]
    served: tuple[int, ...]
    graphs: int
    limit: int
    because: str = ""
    symbolic: Prediction | None = None

    @property
    def recompiled(self) -> int:
        """Compiles after the first."""
        return self.graphs - 1

    @property
    def gives_up(self) -> bool:
        """More graphs are needed than torch.compile makes of one function."""
        return self.graphs > self.limit
