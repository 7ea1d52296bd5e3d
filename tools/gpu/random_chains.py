"""Random regions for the kernel generator: pointwise chains, and chains with reductions over any axes.

`chain(random, size, family)` draws a region's text. Any object with random.Random's methods will do, so that
Hypothesis can draw it (`st.randoms`) and a script on a GPU can draw the same ones from seeds. The same draws at
another size give the same chain over larger tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

FAMILIES = ("pointwise", "reducing")
SIZES: Mapping[str, Mapping[int, tuple[tuple[int, ...], ...]]] = {
    "small": {
        1: ((1037,), (256,)),
        2: ((13, 150), (24, 136), (130, 7), (33, 64), (5, 259)),
        3: ((3, 5, 37), (2, 9, 16)),
    },
    "large": {
        1: ((3_000_001,), (1 << 22,)),
        2: ((1021, 1537), (2048, 1024), (16384, 72), (640, 4096), (77, 20011)),
        3: ((24, 130, 515), (16, 128, 1024)),
    },
    "huge": {1: ((1 << 26,), (1 << 26,)), 2: ((8192, 8192),) * 5, 3: ((16, 4096, 1024),) * 2},
}  # fmt: skip
"""Shapes by rank: odd tails and round ones; large ones are over 1 MB, huge ones move 256 MB and more."""
FLOATS = ("f32", "bf16", "f16")
LARGEST = 500.0
"""Bound on a value's magnitude: squares stay in f16's range."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value of the chain: its name, shape and dtype, a bound on its magnitude, and whether it is an input's value.

    Only inputs' values are compared: they are the same numbers in every precision, so that no rounding changes a mask.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: float = 6.0
    leaf: bool = False

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS


UNARY: tuple[tuple[str, float | None], ...] = (
    ("torch.tanh({})", 1), ("torch.sigmoid({})", 1), ("F.gelu({})", None), ("F.silu({})", None), ("F.relu({})", None),
    ("-{}", None), ("{}.abs()", None), ("{} * 0.5", None), ("{} + 1", None), ("1.5 - {}", None),
    ("{}.clamp(-2, 2)", 2), ("torch.exp({}.clamp(-4, 2))", 8), ("torch.log1p({}.abs())", 7), ("torch.erf({})", 1),
    ("torch.sqrt({}.abs() + 0.5)", None), ("torch.rsqrt({} * {} + 0.5)", 2), ("torch.sin({})", 1),
    ("F.leaky_relu({}, 0.1)", None), ("F.elu({})", None), ("F.softplus({})", None), ("{} / 3", None),
    ("({} + 0.25) ** 2", None), ("torch.square(torch.tanh({}))", 1), ("F.hardswish({})", None),
    ('F.gelu({}, approximate="tanh")', None), ("torch.reciprocal({}.abs() + 1)", 1), ("F.logsigmoid({})", None),
)  # fmt: skip
"""Text, and the bound of its result (None: about its operand's)."""
BINARY = ("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.minimum({}, {})", "{} / ({}.abs() + 1)",
          "torch.lerp({}, {}, 0.3)")  # fmt: skip
LAYOUTS = ("plain", "plain", "plain", "column-major", "gaps", "slice", "step", "transpose", "expand")
BROADCASTS = ("last", "first", "one", "scalar", "middle")
REDUCTIONS = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp")
ALONG = ("softmax", "log_softmax", "centre", "norm", "scale by the largest")


@dataclass
class Chain:
    """The region while it is drawn."""

    random: Random
    shape: tuple[int, ...]
    dtype: str
    inputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    layouts: tuple[str, ...] = LAYOUTS

    # inputs

    def declare(self, shape: Sequence[int], dtype: str, layout: str = "") -> str:
        name = f"x{len(self.inputs)}"
        sizes = ", ".join(map(str, shape)) if shape else "()"
        self.inputs.append(f"{name}: {dtype}[{sizes}]{layout}")
        return name

    def line(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def full(self, dtype: str) -> Item:
        """An input that has all elements of the chain's shape, in one of the layouts."""
        shape, layout = self.shape, self.random.choice(self.layouts)
        last = shape[-1]
        if layout == "column-major" and len(shape) == 2:
            name = self.declare(shape, dtype, f".strides(1, {shape[0]})")
        elif layout == "gaps" and len(shape) == 2:
            name = self.declare(shape, dtype, f".strides({last + 8}, 1)")
        elif layout == "slice":
            name = self.declare((*shape[:-1], last + 8), dtype)
            name = self.line(f"{name}[..., {self.random.choice((3, 8))}:][..., :{last}]")
        elif layout == "step":
            name = self.line(f"{self.declare((*shape[:-1], 2 * last), dtype)}[..., ::2]")
        elif layout == "transpose" and len(shape) > 1:
            swapped = (*shape[:-2], shape[-1], shape[-2])
            name = self.line(f"{self.declare(swapped, dtype)}.transpose(-1, -2)")
        elif layout == "expand" and len(shape) > 1:
            name = self.line(f"{self.declare((1, *shape[1:]), dtype)}.expand({', '.join(map(str, shape))})")
        else:
            name = self.declare(shape, dtype)
        return Item(name, shape, dtype, leaf=True)

    def broadcast(self, dtype: str) -> Item:
        """An input that is broadcast over the chain's shape."""
        shape, kind = self.shape, self.random.choice(BROADCASTS)
        if kind == "last":
            own: tuple[int, ...] = shape[-1:]
        elif kind == "first":
            own = (shape[0], *(1,) * (len(shape) - 1))
        elif kind == "middle" and len(shape) == 3:
            own = (1, shape[1], 1)
        else:
            own = () if kind == "scalar" else (1,)
        return Item(self.declare(own, dtype), own, dtype, leaf=True)

    def operand(self) -> Item:
        """A floating value: one that is there, or a new input."""
        there = [i for i in self.items if i.floating]
        what = self.random.choice(("there", "there", "full", "broadcast"))
        if what == "there" and there:
            return self.random.choice(there)
        dtype = self.dtype if self.random.random() < 0.75 else self.random.choice(FLOATS)
        made = self.full(dtype) if what == "full" else self.broadcast(dtype)
        self.items.append(made)
        return made

    def wide(self) -> Item:
        """A floating value of the chain's whole shape: one of the latest."""
        there = [i for i in self.items if i.floating and i.shape == self.shape]
        return self.random.choice(there[-3:])

    def condition(self) -> str:
        """A mask from inputs alone."""
        kind = self.random.choice(("mask", "leaf", "integers", "both", "position"))
        leaves = [i for i in self.items if i.leaf and i.floating]
        if kind == "mask":
            return self.declare(self.shape if self.random.random() < 0.6 else self.shape[-1:], "bool")
        if kind == "integers":
            dtype = self.random.choice(("i64", "i32"))
            one, other = self.declare(self.shape, dtype), self.declare(self.shape[-1:], dtype)
            return self.random.choice((f"({one} * 2 > {other})", f"(({one} & 3) == 1)", f"({one} - {other} != 0)"))
        if kind == "both":
            one = self.random.choice(leaves).name
            mask = self.declare(self.shape[-1:], "bool")
            return self.random.choice((f"(({one} > 0.25) & ~{mask})", f"torch.logical_or({one} < -0.25, {mask})"))
        if kind == "position":
            return f"(torch.arange({self.shape[-1]}) < {max(1, self.shape[-1] // 3)})"
        return f"({self.random.choice(leaves).name} > {self.random.choice((0, 0.25, -0.75))})"

    # steps

    def keep_in_range(self, item: Item) -> Item:
        """The value, or its tanh where it may be too large to compute on."""
        if item.bound <= LARGEST**0.5:
            return item
        return Item(self.line(f"torch.tanh({item.name})"), item.shape, item.dtype, 1.0)

    def step(self) -> None:
        kind = self.random.choice(("unary", "unary", "binary", "binary", "binary", "where", "cast", "integers"))
        {"unary": self.unary, "binary": self.binary, "where": self.where, "cast": self.cast,
         "integers": self.integers}[kind]()  # fmt: skip

    def add(self, text: str, shape: tuple[int, ...], dtype: str, bound: float) -> Item:
        made = Item(self.line(text), shape, dtype, bound)
        self.items.append(made)
        return made

    def unary(self) -> None:
        item = self.keep_in_range(self.wide())
        text, bound = self.random.choice(UNARY)
        self.add(
            text.replace("{}", item.name),
            item.shape,
            item.dtype,
            bound or (item.bound + 2) ** (2 if "**" in text else 1),
        )

    def binary(self) -> None:
        one, other = self.keep_in_range(self.wide()), self.keep_in_range(self.operand())
        text = self.random.choice(BINARY)
        if "lerp" in text and one.dtype != other.dtype:
            text = "{} + {}"
        if self.random.random() < 0.3 and "/" not in text and "lerp" not in text:
            one, other = other, one
        bound = one.bound * other.bound if "*" in text else one.bound + other.bound
        self.add(text.format(one.name, other.name), self.shape, promote(one, other), bound)

    def where(self) -> None:
        one, test = self.wide(), self.condition()
        if self.random.random() < 0.4:
            self.add(f"{one.name}.masked_fill({test}, -1.5)", self.shape, one.dtype, max(one.bound, 2))
            return
        other = self.operand()
        self.add(
            f"torch.where({test}, {one.name}, {other.name})",
            self.shape,
            promote(one, other),
            max(one.bound, other.bound),
        )

    def cast(self) -> None:
        item = self.wide()
        dtype = self.random.choice(FLOATS)
        self.add(f"{item.name}.to({dtype})", item.shape, dtype, item.bound)

    def integers(self) -> None:
        """An integer input that is computed on and joins the chain."""
        one = self.declare(self.shape, self.random.choice(("i64", "i32", "u8", "i8")))
        item = self.keep_in_range(self.wide())
        text = self.random.choice(("{} * ({} + 1)", "{} + ({} & 3)", "{} - {}", "{} * ({} > 2)"))
        self.add(text.format(item.name, one), self.shape, item.dtype, item.bound * 8)

    # reductions

    def reduce(self) -> Item | None:
        """A reduction over some axes; its result is kept, or broadcast back over the chain."""
        item = self.keep_in_range(self.wide())
        rank = len(self.shape)
        axes = [(-1,), (-1,), (0,)] + [(0, 2), (1,), (1, 2)] * (rank == 3) + [tuple(range(rank))]
        dims = self.random.choice(axes)
        if math.prod(self.shape[d] for d in dims) < 2:
            return None
        if len(dims) == 1 and self.random.random() < 0.4:
            self.along(item, dims[0])
            return None
        if self.random.random() < 0.15 and dims == (-1,):
            self.normalise(item)
            return None
        how = self.random.choice(REDUCTIONS)
        # A sum near zero has no relative error to speak of.
        source = f"({item.name}.abs() + 0.25)" if how in ("sum", "mean") else item.name
        if how in ("var", "std"):  # nor a spread of what is the same all along
            source = f"({item.name} + {self.declare(self.shape, item.dtype)})"
        given = str(dims[0]) if len(dims) == 1 else str(dims)
        keep = self.random.random() < 0.5
        text = f"torch.{how}({source}.float(), {given}, keepdim={keep})"
        own = tuple(1 if d in {x % rank for x in dims} else n for d, n in enumerate(self.shape))
        count = math.prod(self.shape[d] for d in dims)
        bound = item.bound * count if how == "sum" else item.bound**2 + 10
        if not keep:
            return Item(
                self.line(text),
                tuple(n for d, n in enumerate(self.shape) if d not in {x % rank for x in dims}),
                "f32",
                bound,
            )
        name = self.line(text)
        again = self.random.choice(("{} - {}", "{} * {}", "{} / ({}.abs() + 1)"))
        scaled = f"({name} / {count})" if how == "sum" else name
        self.add(again.format(item.name, scaled), self.shape, "f32", item.bound * 8)
        return Item(name, own, "f32", bound)

    def along(self, item: Item, dim: int) -> None:
        kind = self.random.choice(ALONG)
        name = item.name
        if kind in ("softmax", "log_softmax"):
            self.add(f"torch.{kind}({name}, {dim})", self.shape, item.dtype, 2 * item.bound + 12)
        elif kind == "centre":
            self.add(f"{name} - {name}.mean({dim}, keepdim=True)", self.shape, item.dtype, 2 * item.bound)
        elif kind == "norm":
            root = f"torch.rsqrt({name}.float().pow(2).mean({dim}, keepdim=True) + 1e-5)"
            self.add(f"{name}.float() * {root}", self.shape, "f32", 40)
        else:
            self.add(f"{name} / ({name}.abs().amax({dim}, keepdim=True) + 1)", self.shape, item.dtype, 1)

    def normalise(self, item: Item) -> None:
        last = self.shape[-1]
        weight = self.declare((last,), item.dtype)
        call = self.random.choice(
            (f"F.layer_norm({item.name}, ({last},), {weight})", f"F.rms_norm({item.name}, ({last},), {weight}, 1e-5)")
        )
        self.add(call, self.shape, item.dtype, 60)


def promote(one: Item, other: Item) -> str:
    """The dtype of an operation on both, as torch promotes: a scalar tensor only among its own kind."""
    if one.dtype == other.dtype:
        return one.dtype
    if bool(one.shape) != bool(other.shape):
        return one.dtype if one.shape else other.dtype
    return "f32"


def chain(random: Random, size: str = "small", family: str = "pointwise") -> str:
    """A region's text. random: draws it; size: of SIZES; family: of FAMILIES."""
    rank = random.choice((1, 2, 2, 2, 3))
    shapes = SIZES[size][rank]
    made = Chain(random, shapes[random.randrange(len(shapes))], random.choice(FLOATS))
    if family == "reducing":  # what is the same all along an axis has no spread, and no relative error
        made.layouts = tuple(x for x in LAYOUTS if x != "expand")
    made.items.append(made.full(made.dtype))
    results: list[Item] = []
    for _ in range(random.randint(2, 8)):
        if family == "reducing" and random.random() < 0.4:
            reduced = made.reduce()
            results.extend([reduced] if reduced is not None else [])
        else:
            made.step()
    computed = [i for i in made.items if not i.leaf]
    wanted = {computed[-1].name: None} if computed else {}
    wanted.update({i.name: None for i in results})
    for item in computed[:-1]:
        if random.random() < 0.25:
            wanted[item.name] = None
    if not wanted:
        wanted[made.line(f"{made.items[0].name} * 2")] = None
    lines = [*made.inputs, *made.lines, f"return {', '.join(wanted)}"]
    return "\n".join(lines) + "\n"


def chain_of_seed(seed: int, size: str = "small", family: str = "pointwise") -> str:
    """The chain of a seed."""
    return chain(Random(f"{family} {seed}"), size, family)
