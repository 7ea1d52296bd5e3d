"""How large a region may be: bounds that hold before any work is done for it. Torch-free."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from profiler.region.model import RegionError

MAX_OPERATIONS = 1_500  # written, after unrolling
MAX_LOWERED = 2_500  # as torch runs them: what one call comes to, what a split gives, and backward
MAX_NESTING = 16  # tuples and lists within each other
MAX_RANK = 8  # of an input
MAX_RESULT_RANK = 16  # of a result: a few more, for unsqueeze and expand
MAX_SIZE = 2**40
MAX_BYTES = 2**44  # of one tensor; no GPU holds 16 TiB, and a slip of a zero should not pass
MAX_REGION_BYTES = 2**46  # of all tensors that a region makes
MAX_ITEMS = 2_048  # numbers and tensors in the arguments of one operation, or results of one
MAX_NUMBER = 2**63
MAX_EXPONENT = 64

BACKWARD = 4
"""What a gradient adds to an operation that it passes through, in operations; a view adds one."""

BACKWARD_OF: Mapping[str, int] = MappingProxyType(
    {"native_layer_norm": 9, "native_batch_norm": 11, "_native_batch_norm_legit": 11, "_fused_rms_norm": 19,
     "native_group_norm": 29, "_cdist_forward": 29, "binary_cross_entropy_with_logits": 14}
)  # fmt: skip
"""The same where torch writes the backward out as many operations: by the time that advice on them takes."""

COUNTED = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript)


def size_of_range(bounds: tuple[int, ...]) -> int:
    """Rounds of `for i in range(*bounds)`; ValueError for a step of 0. len() overflows on large ones."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    return max(0, -((start - stop) // step))


def operations(node: ast.stmt) -> int:
    """At most how many operations a statement comes to, loops over constant ranges unrolled; at least 1.

    A loop over a number that is still unknown counts once: `program` counts it when the number is.
    """
    if isinstance(node, ast.For):
        return max(1, _rounds(node)) * sum(operations(s) for s in node.body)
    return max(1, sum(isinstance(n, COUNTED) for n in ast.walk(node)))


def _rounds(node: ast.For) -> int:
    arguments = node.iter.args if isinstance(node.iter, ast.Call) else []
    bounds = tuple(a.value for a in arguments if isinstance(a, ast.Constant) and type(a.value) is int)
    if not bounds or len(bounds) != len(arguments) or (len(bounds) == 3 and bounds[2] == 0):
        return 1
    return size_of_range(bounds)


def check_operations(statements: list[ast.stmt]) -> None:
    """Raises RegionError at the statement that takes the count beyond MAX_OPERATIONS."""
    total = 0
    for node in statements:
        total += operations(node)
        if total > MAX_OPERATIONS:
            where = node.iter if isinstance(node, ast.For) else node
            raise RegionError(
                f"the region comes to more than {MAX_OPERATIONS} operations",
                code="region-too-long",
                line=where.lineno,
                column=where.col_offset + 1,
                end_column=None if where.end_lineno != where.lineno else (where.end_col_offset or 0) + 1,
                hint="loops are unrolled: write the recurrence over fewer rounds" if isinstance(node, ast.For) else "",
            )
