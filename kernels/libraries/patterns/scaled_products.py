"""How a region says what our kernels of products of one-byte numbers with scales compute."""

from __future__ import annotations

from math import prod

from kernels.libraries.launchers import Launcher, Pattern
from kernels.libraries.model import Facts
from kernels.libraries.patterns.readings import FLOATS
from kernels.libraries.patterns.rows import ANY, Roles
from kernels.libraries.patterns.terms import Bound, Fixed, Leaf, Term, Viewed, With, call, either
from kernels.ops.quantised.scaled_gemm import BLOCK, RESULTS
from profiler.region.graph.lowering import Graph
from profiler.region.graph.nodes import shape

SCALE_A, SCALE_B = Leaf("scale_a"), Leaf("scale_b")


def widened(term: Term, role: str = "") -> Term:
    """A conversion from a one-byte number that keeps it, which terms do not look through."""
    return call("_to_copy|to", term, dtype=Fixed(FLOATS), layout=ANY, device=ANY, pin_memory=ANY, non_blocking=ANY,
                memory_format=ANY, role=role)  # fmt: skip


def turned(term: Term) -> Term:
    """The term transposed, or as it is, and which: the role `turned`."""
    across = either(
        call("t", term), call("transpose", term, dim0=Fixed((0, -2)), dim1=Fixed((1, -1))),
        call("transpose", term, dim0=Fixed((1, -1)), dim1=Fixed((0, -2))), call("permute", term, dims=Fixed(([1, 0],))),
    )  # fmt: skip
    return either(With(across, {"turned": True}), With(term, {"turned": False}))


A, B = widened(Leaf("a")), widened(Leaf("b"))
ROWS = either(
    call("mm", call("mul", A, SCALE_A), turned(call("mul", B, SCALE_B)), role="product"),
    call("mul", call("mul", call("mm", A, turned(B), role="product"), SCALE_A), SCALE_B, role="behind"),
)


def _blocks(x: Term, scales: Term, name: str) -> Term:
    blocks = call("view|reshape", x, size=ANY, role=f"{name}_blocks")
    return Viewed(call("mul", blocks, scales, role=f"{name}_scaled"))


LAST = Fixed((-1, 2))
OF_A = either(call("unsqueeze", SCALE_A, dim=LAST, role="shown_a"), SCALE_A)
OF_B = either(call("unsqueeze", call("unsqueeze", SCALE_B, dim=1), dim=Fixed((-1, 3)), role="shown_b"), SCALE_B)
BLOCKS = call("mm", _blocks(A, OF_A, "a"), turned(_blocks(B, OF_B, "b")), role="product")


def _along(size: tuple[int, ...], rows: int, columns: int) -> str:
    """Which axis of a matrix of these sizes numbers of this shape are spread from: "one" for a number."""
    if prod(size) == 1:
        return "one"
    if len(size) == 2 and size == (rows, 1):
        return "rows"
    return "columns" if size[-1] == prod(size) == columns else ""


def _rows(bound: Bound) -> Roles | None:
    (m, n), b = shape(bound["product"]), shape(bound["b"])
    scales = [bound["scale_a"], bound["scale_b"]]
    if "behind" in bound:
        of = [_along(shape(s), m, n) for s in scales]
        scales = scales[::-1] if of[0] == "columns" or of[1] == "rows" else scales
        fitting = all(_along(shape(s), m, n) in ("one", w) for s, w in zip(scales, ("rows", "columns"), strict=True))
    else:
        axis = "rows" if bound["turned"] else "columns"
        fitting = _along(shape(scales[0]), *shape(bound["a"])) in ("one", "rows")
        fitting = fitting and _along(shape(scales[1]), *b) in ("one", axis)
    return {**bound, "scale_a": scales[0], "scale_b": scales[1], "block": False} if fitting else None


def _blocked(bound: Bound) -> Roles | None:
    (m, k), b = shape(bound["a"]), shape(bound["b"])
    high, wide = b[0] // BLOCK, b[1] // BLOCK
    fitting = (
        not k % BLOCK and not b[0] % BLOCK and not b[1] % BLOCK
        and shape(bound["a_blocks"]) == (m, k // BLOCK, BLOCK)
        and shape(bound["b_blocks"]) == (high, BLOCK, wide, BLOCK)
        and shape(bound["a_scaled"]) == shape(bound["a_blocks"])
        and shape(bound["b_scaled"]) == shape(bound["b_blocks"])
        and shape(bound.get("shown_a", bound["scale_a"])) == (m, k // BLOCK, 1)
        and shape(bound.get("shown_b", bound["scale_b"])) == (high, 1, wide, 1)
    )  # fmt: skip
    return {**bound, "block": True} if fitting else None


def _limits(facts: Facts, graph: Graph) -> str:
    kinds = {facts.dtypes["a"], facts.dtypes["b"]}
    if len(kinds) > 1 or not kinds <= {"f8e4m3", "i8"} or (facts.roles["block"] and kinds != {"f8e4m3"}):
        return f"numbers in {' and '.join(sorted(kinds))}"
    if {facts.dtypes["scale_a"], facts.dtypes["scale_b"]} != {"f32"}:
        return f"scales in {facts.dtypes['scale_a']} and {facts.dtypes['scale_b']}"
    return "" if facts.roles["dtype"] in RESULTS else f"a result in {facts.roles['dtype']}"


SCALED: tuple[Launcher, ...] = (
    Launcher(
        "triton:scaled_gemm", "scaled_gemm", "scaled_gemm",
        ("a", "b", "scale_a", "scale_b", "dtype", "block", "turned"), ("f32",), (Pattern((ROWS,)), Pattern((BLOCKS,))),
        lambda bound: _blocked(bound) if "a_blocks" in bound else _rows(bound), ("scale_a", "scale_b"),
        frozenset({"dtype", "block", "turned"}), rank=2, limits=_limits, told="dtype",
    ),
)  # fmt: skip
