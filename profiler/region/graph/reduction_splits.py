"""In how many kernels one reduction runs: torch.compile splits those with few results over the processors.

The conditions are Inductor's own (torch 2.13, `choices.reduction_split_factor` and `ir.Reduction.num_splits`) for a GPU
of PROCESSORS processors of 2,048 threads: a split factor above 1, solved for the sizes at which that begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiler.region import op_kinds
from profiler.region.graph.operation import Operation

PROCESSORS = 132
INNER_RESULTS = 2 * PROCESSORS
INNER_COLUMNS = 8192
OUTER_RESULTS = 2 * PROCESSORS * 32
OUTER_COLUMNS = 128

PARTIAL, FINAL, APPLY = "partial", "final", "apply"
"""A block's share of a reduction; the sum over blocks; what reads the tensor again with the results."""

SPLIT = frozenset({"sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all", "var", "std", "var_mean",
                   "std_mean", "norm", "linalg_vector_norm", "nansum", "mse_loss", "l1_loss"})  # fmt: skip
"""argmax and argmin are never split; scans are, inside one kernel."""
NORMS = frozenset({"native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "rms_norm", "_fused_rms_norm"})
SOFTMAXES = frozenset({"_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax"})


def stages(operation: Operation, rows: int, columns: int) -> tuple[str, ...]:
    """The kernels of one reduction in order; () where one kernel does all of it. rows: results, columns: to each."""
    name = op_kinds.base_name(operation.target)
    if name == "nll_loss_forward":  # the mean over the targets loops over other elements than the softmax before it
        mean = columns == 1 and rows > 1 and operation.writes[0].elements == 1
        return (PARTIAL, FINAL) if mean else ()
    if name in ("max", "min") and len(operation.writes) > 1:
        return ()  # with the places, as argmax
    if name not in SPLIT | NORMS | SOFTMAXES | {"logsumexp"} or not splits(rows, columns, inner(operation)):
        return ()
    if name in NORMS | SOFTMAXES:
        return (PARTIAL, FINAL, APPLY)
    return (PARTIAL, FINAL) * (2 if name == "logsumexp" else 1)


def splits(rows: int, columns: int, contiguous: bool) -> bool:
    """A reduction to `rows` results of `columns` elements each takes two kernels. contiguous: its elements adjoin."""
    if contiguous or rows == 1:
        return rows < INNER_RESULTS and columns > INNER_COLUMNS
    return rows < OUTER_RESULTS and columns > OUTER_COLUMNS


def mixes(reduced: Sequence[Operation], rows: int, columns: int) -> bool:
    """Split column reductions of `rows` x `columns` elements fuse with a row reduction of the same tensor.

    Inductor's mix_order_reduction: sums, many rows, rows that one program holds (`scheduler.MixOrderReduction`).
    """
    sums = bool(reduced) and all(op_kinds.base_name(o.target) in ("sum", "mean", "prod") for o in reduced)
    return sums and rows * columns >= 5 * 2**20 and rows >= max(4096, 2 * columns) and columns <= 16384


def inner(operation: Operation) -> bool:
    """Some axis that is reduced has stride 1."""
    if operation.kind == op_kinds.NORMALISATION or not operation.reads:
        return True
    source = max(operation.reads, key=lambda t: t.elements)
    axes = operation.axes or tuple(range(len(source.shape)))
    return math.prod(source.shape) <= 1 or any(source.stride[a] == 1 for a in axes if source.shape[a] > 1)
