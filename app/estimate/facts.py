"""RegionFacts: what the rule and the estimate need to know of a region, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from app.atlas.price import Total
from app.atlas.shipped import Launched
from profiler.oracle.model import Prediction, Recompiles
from profiler.region.graph.cost_model import Cost, KernelCost

if TYPE_CHECKING:
    from profiler.trace.analyze.compile_blockers import CompileBlocker

SPECIAL = frozenset({"gelu", "gelu_backward", "erf", "erfc", "erfinv", "lgamma", "digamma", "tan", "pow_tensor"})
"""Pointwise functions whose arithmetic, not their bytes, sets eager's pace in 16-bit types."""

CURVED = SPECIAL | {"silu", "sigmoid", "tanh", "softplus", "mish", "elu", "selu", "celu"}
"""Activations whose arithmetic takes longer than a product's units should wait."""

ACCUMULATING = frozenset({"index_add", "scatter_add", "scatter_reduce"})
"""Operations that add to memory at places that are data."""


class Cover(Protocol):
    """What the rule reads of a `kernels.libraries.model.Cover`: one library call that may cover the region.

    candidate: "library:PACKAGE.CALL". call: code to paste. covers: every condition holds, as far as it is known.
    conditions: (text, holds or None where unknown). already: those operations are this call as they stand.
    operations: names of the operations that it replaces; whole: they are all there is. adapter: names the rewrite by
    which this program runs it, empty where a user has to write that. missing: why it cannot be called here, or "".
    verdict: the catalogue's on the operation. install: the command that gets the package, "" where it is here. density:
    share of attention's scores that it computes, None for that of any call. loses_digits: its result is of fewer
    digits than the region's.
    """

    @property
    def candidate(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def call(self) -> str: ...
    @property
    def covers(self) -> bool: ...
    @property
    def conditions(self) -> tuple[tuple[str, bool | None], ...]: ...
    @property
    def installed(self) -> bool: ...
    @property
    def already(self) -> bool: ...
    @property
    def note(self) -> str: ...
    @property
    def operations(self) -> frozenset[str]: ...
    @property
    def whole(self) -> bool: ...
    @property
    def loses_digits(self) -> bool: ...
    @property
    def adapter(self) -> str | None: ...
    @property
    def missing(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def install(self) -> str: ...
    @property
    def density(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """What one operation's time depends on apart from its bytes.

    elements: of its largest tensor. rows, columns: independent results and elements per result; columns 1 is pointwise.
    strided: reduces over another axis than the last. broadcast: reads a tensor of another shape than it writes.
    m, n, k, batch: a matrix product's sizes, 0 elsewhere. dtype, itemsize: of its largest tensor.
    """

    name: str
    target: str
    kind: str
    elements: int
    rows: int = 1
    columns: int = 1
    strided: bool = False
    broadcast: bool = False
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    dtype: str = "f32"
    itemsize: int = 4
    written: str = "f32"  # dtype of its result
    narrow: bool = False  # reads or writes one-byte numbers
    widens: bool = False  # a conversion between types of different sizes
    backward: bool = False  # of the backward pass: it depends on an upstream gradient
    pieces: bool = False  # puts tensors together of which each gives short runs of memory
    spatial: int = 0  # axes that a convolution moves along


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of the fused region: iteration space, reductions over rows in order, stage as in KernelCost.

    again: bytes that are read a second time where the kernel holds forward and backward, which run as two. axes: of
    the tiles by which it adds to memory, neighbours counted as one where all its tensors go on as if they were.
    """

    operations: tuple[str, ...]
    rows: int
    columns: int
    strided: bool = False
    reductions: tuple[str, ...] = ()
    stage: str = ""
    again: int = 0
    axes: int = 1


@dataclass(frozen=True, slots=True)
class Taken:
    """Operations that the generator writes a kernel for where torch.compile calls a library or aten.

    whole: with them it makes one kernel of all of the region.
    """

    operations: frozenset[str] = frozenset()
    whole: bool = False


NOTHING_TAKEN = Taken()


@dataclass(frozen=True, slots=True)
class ShapeFacts:
    """The region at one binding of its sizes. calls: how often per step at this binding.

    halves: fewest bytes of the forward and of the backward pass, each on its own; None without gradients.
    joined: computed tensors that the region puts together into one. reread: bytes of a product's rows that an operation
    behind it reads again: a residual. between: elements of the activations that lie between two products. exchanged:
    bytes that fused groups read of each other's results. launched: its operations with their tensors, for the atlas;
    None where only their costs are known.
    """

    cost: Cost
    operations: tuple[OperationFacts, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    calls: float = 1.0
    binding: tuple[tuple[str, int], ...] = ()
    halves: tuple[int, int] | None = None
    joined: int = 0
    reread: int = 0
    between: int = 0
    exchanged: int = 0
    launched: Launched | None = None

    def operation(self, name: str) -> OperationFacts | None:
        return next((o for o in self.operations if o.name == name), None)

    def generated(self, taken: Taken) -> tuple[KernelCost, ...]:
        """The fused region's kernels, with what the generator takes of its calls as kernels that are generated."""
        kernels, operations = self.cost.kernels, taken.operations
        if taken.whole:
            names = tuple(name for k in kernels for name in k.operations)
            ideal, flops = self.cost.ideal, sum(k.flops for k in kernels)
            return (KernelCost("generated", "fused", names, ideal.bytes_read, ideal.bytes_written, flops),)
        return tuple(
            replace(k, kind="fused") if k.operations and operations.issuperset(k.operations) else k for k in kernels
        )


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of this project for the region. candidate: "triton:KERNEL"; call: code to paste.

    lines: of code that come along when it is taken home, 0 where nobody counted. part: the operations that it computes,
    where it leaves others as they are; None for all of them.
    """

    candidate: str
    call: str = ""
    lines: int = 0
    part: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FusionGap:
    """By how much the generator of Triton falls short of the fused groups that are costed.

    written, read: bytes that its kernels write beyond these groups, and that they read beyond these of each other's
    results, both over what the groups write; launches beyond theirs.
    """

    written: float = 0.0
    read: float = 0.0
    launches: int = 0

    @staticmethod
    def between(
        launches: int, bytes_written: int, bytes_between: int, shape: ShapeFacts, taken: Taken = NOTHING_TAKEN
    ) -> FusionGap:
        """What the generator makes, compared with the region's fused cost at the same sizes. Never negative.

        bytes_between: what its kernels read of each other's results. taken: calls in that cost which it fuses.
        """
        groups = [k for k in shape.generated(taken) if k.kind == "fused"]
        written, more = sum(k.bytes_written for k in groups), max(0, launches - len(groups))
        if not written or not launches:
            return FusionGap(launches=more)
        beyond = max(0, bytes_written - written), max(0, bytes_between - shape.exchanged)
        return FusionGap(beyond[0] / written, beyond[1] / written, more)


@dataclass(frozen=True)
class RegionFacts:
    """A region as the rule sees it.

    shapes: one per binding, () where no sizes are known. kinds: of its operations, without views and constants.
    externs: names of calls inside that torch.compile does not fuse across. bound: "memory" or "compute" where
    somebody said so and there is no cost to tell. fuses: whether torch.compile makes one pass of it, where an oracle
    or an answer says so. uniqueness: the widget's answer. irregularity: 0 to 1, see `irregularity`.
    gpu_idle_share, mean_kernel_us: of the step that the region is from; launches: kernel launches in one call.
    already_tuned: it runs on a hand-written Triton or CUDA kernel. optimizer_class: whose step it is. needs: what
    Triton does not give ("grid-wide", "nvlink", "last per cent"). not_generated: why the generator of Triton
    refuses the region, "" where it takes it or was not asked; generated_lines: of code that it writes; helion_lines:
    of the same in Helion, 0 where that has no such source; apart: what it does not fuse; taken: what it
    fuses where torch.compile makes a call. kernels: this project's own that compute all of it.
    hidden_share: of the products' FLOPs, those of scores that masks of positions hide.
    attention_density: share of its attention's scores that any call has to look at, half in causal order.
    attends_in: dtype of the queries, keys and values that its attention by hand widens before it multiplies them, as a
    call for it takes them; "" elsewhere. sdpa:
    operations that torch.compile turns into scaled_dot_product_attention; sdpa_bytes: what that moves. obstacles:
    what would stop torch.compile between its operations (`inside`) or elsewhere in its module, as its trace shows.
    share_predicted:
    the step is predicted and nobody recorded it. tf32_is_on: most of the step's f32 products run in TF32.
    prediction, recompiles: the oracle's answers, None where it was not
    asked or had none. compiled_total: the
    prediction's kernels and calls at the heaviest binding, priced by the device's atlas. packages_known: what is
    installed is known, or taken to be what this host has, so that nothing else is advised; the widget asks of no host.
    """

    name: str = "region"
    kind: str = "other"
    title: str = "region"
    by_hand: bool = False
    dtype: str = ""
    shapes: tuple[ShapeFacts, ...] = ()
    kinds: frozenset[str] = frozenset()
    externs: tuple[str, ...] = ()
    covers: tuple[Cover, ...] = ()
    inputs: tuple[str, ...] = ()
    requires_grad: bool = False
    random: bool = False
    compiled: bool = False
    communication: bool = False
    copies: bool = False
    waits_for_host: bool = False
    packages_known: bool = False
    already_tuned: bool = False
    quantised: str = ""
    gemm_rows: int | None = None
    optimizer: bool = False
    optimizer_class: str = ""
    needs: tuple[str, ...] = ()
    bound: str | None = None
    fuses: bool | None = None
    uniqueness: float | None = None
    irregularity: float | None = None
    gpu_idle_share: float | None = None
    mean_kernel_us: float | None = None
    launches: float | None = None
    not_generated: str = ""
    generated_lines: int = 0
    helion_lines: int = 0
    helion_installed: bool = False
    apart: FusionGap = FusionGap()
    taken: Taken = NOTHING_TAKEN
    kernels: tuple[Kernel, ...] = ()
    attention_density: float = 1.0
    attends_in: str = ""
    hidden_share: float = 0.0
    sdpa: frozenset[str] = frozenset()
    sdpa_bytes: int = 0
    prediction: Prediction | None = None
    compiled_total: Total | None = None
    recompiles: Recompiles | None = None
    obstacles: tuple[CompileBlocker, ...] = ()
    kernel_names: tuple[str, ...] = ()
    library_call: str = ""
    share_predicted: bool = False
    tf32_is_on: bool = False

    @property
    def cost(self) -> Cost | None:
        """The cost at the binding that moves most bytes per step."""
        shape = self.heaviest
        return None if shape is None else shape.cost

    @cached_property
    def heaviest(self) -> ShapeFacts | None:
        return max(self.shapes, key=lambda s: s.calls * s.cost.unfused.bytes_moved, default=None)

    @property
    def calls(self) -> float:
        """Calls per step over all bindings."""
        return sum(s.calls for s in self.shapes)
