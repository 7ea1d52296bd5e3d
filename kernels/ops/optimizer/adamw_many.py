"""AdamW over many tensors in one launch: parameters in f32, f16 or bf16, moments in f32, optional f32 masters.

    m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g²
    p = p (1 - lr decay) - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)

as torch.optim.AdamW(fused=True) has it, without amsgrad; but gradients stay as they are, which that one writes back
divided by grad_scale. What is launched is a list of chunks, so that a thousand short tensors cost no more than a long
one. `AdamW` is made once for a model: it keeps a table of all tensors' addresses on the device, 80 bytes a tensor.
Where a step finds one of them, or a gradient's, to be another than at the last step, the whole table is copied anew.

Traffic: p, g, m, v read, p, m, v written: 28 bytes an element in f32, 22 for 16-bit parameters and gradients, 28 with
f32 masters (those read and written, p written alone).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import ALIGNMENT, Tuner, Variant

COLUMNS = ("parameter", "gradient", "average", "square", "master", "new_parameter", "new_average", "new_square",
           "new_master", "size")  # fmt: skip
"""Of the table: addresses in bytes, and how many elements; a row a tensor."""
TRIED = 1 << 26
"""Elements on which variants are timed: the results of the trials need memory beside those of the model."""

FIRST = "evict_first"

tuner = Tuner("adamw_many")


def reference(
    parameter: torch.Tensor, gradient: torch.Tensor, average: torch.Tensor, square: torch.Tensor,
    master: torch.Tensor | None, sizes: tuple[int, ...], lr: float, step: int, betas: tuple[float, float], eps: float,
    weight_decay: float, grad_scale: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """What is computed, in plain PyTorch, on all tensors laid end to end: all that is updated, in this order."""
    g = wide(gradient) if grad_scale is None else wide(gradient) / grad_scale
    p = wide(parameter) if master is None else master
    m = betas[0] * average + (1 - betas[0]) * g
    v = betas[1] * square + (1 - betas[1]) * g * g
    depth = v.sqrt() / math.sqrt(1 - betas[1] ** step) + eps
    p = p * (1 - lr * weight_decay) - lr / (1 - betas[0] ** step) * m / depth
    return (p.to(parameter.dtype), m, v, *(() if master is None else (p,)))


@triton.jit
def pointer_to(table_ptr, tensor, column: tl.constexpr, DTYPE: tl.constexpr, COLUMNS: tl.constexpr,
               ALIGNED: tl.constexpr):  # fmt: skip
    """The address that a table holds, as a pointer."""
    ptr = tl.load(table_ptr + tensor * COLUMNS + column).to(tl.pointer_type(DTYPE))
    if ALIGNED:
        ptr = tl.multiple_of(ptr, 16)
    return ptr


@triton.jit
def loaded(ptr, at, size, WHOLE: tl.constexpr, EVICT: tl.constexpr):
    """Numbers in f32."""
    if WHOLE:
        return tl.load(ptr + at, eviction_policy=EVICT).to(tl.float32)
    return tl.load(ptr + at, mask=at < size, other=0.0, eviction_policy=EVICT).to(tl.float32)


@triton.jit
def stored(ptr, at, x, size, WHOLE: tl.constexpr, EVICT: tl.constexpr):
    """The counterpart."""
    if WHOLE:
        tl.store(ptr + at, rounded(x, ptr), eviction_policy=EVICT)
    else:
        tl.store(ptr + at, rounded(x, ptr), mask=at < size, eviction_policy=EVICT)


@triton.jit
def updated(
    p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, copy_ptr, at, size, inverse, kept, rate, beta1, beta2, part1,
    part2, depth, eps, MASTER: tl.constexpr, WHOLE: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """One block. MASTER: p is in f32, and copy_ptr is where it goes rounded as well."""
    g = loaded(g_ptr, at, size, WHOLE, EVICT) * inverse
    p = loaded(p_ptr, at, size, WHOLE, EVICT)
    m = loaded(m_ptr, at, size, WHOLE, EVICT)
    v = loaded(v_ptr, at, size, WHOLE, EVICT)
    m = beta1 * m + part1 * g
    v = beta2 * v + part2 * g * g
    p = p * kept - rate * (m / (tl.sqrt(v) * depth + eps))
    stored(p_out, at, p, size, WHOLE, EVICT)
    stored(m_out, at, m, size, WHOLE, EVICT)
    stored(v_out, at, v, size, WHOLE, EVICT)
    if MASTER:
        stored(copy_ptr, at, p, size, WHOLE, EVICT)


@triton.jit
def adamw_chunks(
    table_ptr, chunks_ptr, scale_ptr, skip_ptr, kept, rate, beta1, beta2, part1, part2, depth, eps,
    BLOCK: tl.constexpr, STEPS: tl.constexpr, EVICT: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
    GRADIENT: tl.constexpr, MASTER: tl.constexpr, SCALED: tl.constexpr, CHECKED: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """STEPS blocks of one tensor a program. chunks_ptr: which tensor, above 32 bits, and which chunk of it.

    kept: 1 - lr * decay. rate: lr / (1 - beta1^step). depth: 1 / sqrt(1 - beta2^step). part1, part2: 1 - beta1 and
    1 - beta2, which f32 would subtract to four digits. SCALED: gradients are divided by
    the number at scale_ptr. CHECKED: nothing is written where the one at skip_ptr is not 0. ALIGNED: every address is a
    multiple of 16. EVICT: what accesses say to the L2 cache.
    """
    word = tl.load(chunks_ptr + tl.program_id(0))
    tensor = word >> 32
    start = (word & 0xFFFFFFFF) * (BLOCK * STEPS)
    size = tl.load(table_ptr + tensor * COLUMNS + 9)
    if CHECKED:
        size = tl.where(tl.load(skip_ptr) != 0.0, 0, size)
    inverse = 1.0
    if SCALED:
        inverse = 1.0 / tl.load(scale_ptr)
    g_ptr = pointer_to(table_ptr, tensor, 1, GRADIENT, COLUMNS, ALIGNED)
    m_ptr = pointer_to(table_ptr, tensor, 2, tl.float32, COLUMNS, ALIGNED)
    v_ptr = pointer_to(table_ptr, tensor, 3, tl.float32, COLUMNS, ALIGNED)
    m_out = pointer_to(table_ptr, tensor, 6, tl.float32, COLUMNS, ALIGNED)
    v_out = pointer_to(table_ptr, tensor, 7, tl.float32, COLUMNS, ALIGNED)
    copy_ptr = pointer_to(table_ptr, tensor, 5, DTYPE, COLUMNS, ALIGNED)
    if MASTER:
        p_ptr = pointer_to(table_ptr, tensor, 4, tl.float32, COLUMNS, ALIGNED)
        p_out = pointer_to(table_ptr, tensor, 8, tl.float32, COLUMNS, ALIGNED)
    else:
        p_ptr = pointer_to(table_ptr, tensor, 0, DTYPE, COLUMNS, ALIGNED)
        p_out = copy_ptr
    for i in range(STEPS):
        first = start + i * BLOCK
        at = first + tl.arange(0, BLOCK)
        # A mask that ends anywhere would forbid accesses of 128 bits: only a tensor's last block has one.
        if first + BLOCK <= size:
            updated(p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, copy_ptr, at, size, inverse, kept, rate, beta1,
                    beta2, part1, part2, depth, eps, MASTER, True, EVICT)  # fmt: skip
        elif first < size:
            updated(p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, copy_ptr, at, size, inverse, kept, rate, beta1,
                    beta2, part1, part2, depth, eps, MASTER, False, EVICT)  # fmt: skip


TILES = (
    (1024, 8, 1, ""), (1024, 8, 1, FIRST), (512, 4, 1, FIRST), (512, 4, 1, ""), (1024, 4, 1, FIRST), (512, 2, 1, FIRST),
    (1024, 4, 1, ""), (1024, 4, 4, FIRST), (1024, 8, 4, ""),
)  # fmt: skip
"""Elements of a block, warps, blocks of a program, cache policy."""


def space(constants: Sequence[tuple[str, object]]) -> list[Variant]:
    """Variants worth timing: 4 or 8 elements a thread and block, one or four blocks a program; lines that leave the
    cache first or as they come."""
    return [
        Variant(adamw_chunks, (("BLOCK", b), ("STEPS", n), ("EVICT", evict), *constants), w,
                tuned=("BLOCK", "STEPS", "EVICT"))
        for b, w, n, evict in TILES
    ]  # fmt: skip


def chunks_of(sizes: Sequence[int], length: int, device: torch.device) -> torch.Tensor:
    """int64 words: a tensor's number times 2^32, and the number of a chunk of so many elements of it."""
    counts = torch.tensor([-(-s // length) for s in sizes], dtype=torch.int64)
    tensor = torch.repeat_interleave(torch.arange(len(counts)), counts)
    before = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return ((tensor << 32) | (torch.arange(len(tensor)) - before)).to(device)


def launch(
    variant: Variant, table: torch.Tensor, sizes: tuple[int, ...], made: dict[int, torch.Tensor],
    scale: torch.Tensor, skip: torch.Tensor, numbers: tuple[float, ...],
) -> None:  # fmt: skip
    """Run one variant. table: as COLUMNS has it; made: chunk length -> chunks, kept for the next launch."""
    length = variant["BLOCK"] * variant["STEPS"]
    if length not in made:
        made[length] = chunks_of(sizes, length, table.device)
    chunks = made[length]
    if len(chunks):
        adamw_chunks[(len(chunks),)](table, chunks, scale, skip, *numbers, **variant.meta)


Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Trial:
    """What variants are timed on. scratch: where the results go."""

    table: torch.Tensor
    sizes: tuple[int, ...]
    scratch: Sequence[torch.Tensor]
    chunks: dict[int, torch.Tensor]


@dataclass
class AdamW:
    """The state of one model: made once, then `step` after every backward.

    parameters: one dtype of f32, f16, bf16. averages, squares: m and v in f32. masters: the parameters in f32, which
    are what is updated, or None. into: where parameters, m, v (and masters) go, if not to where they came from. All
    tensors of one parameter have its shape and strides and no gaps. The sequences are kept: a step goes by the memory
    that their tensors have then, also after `p.data = other`. Raises TypeError for other dtypes, ValueError for tensors
    that do not belong together, are on several devices, or are given twice.
    """

    parameters: Tensors
    averages: Tensors
    squares: Tensors
    masters: Tensors | None = None
    into: tuple[Tensors, ...] | None = None
    _sizes: tuple[int, ...] = field(init=False, repr=False)
    _table: torch.Tensor = field(init=False, repr=False)
    _own: tuple[object, ...] = field(init=False, default=(), repr=False)
    _given: tuple[object, ...] = field(init=False, default=(), repr=False)
    _aligned: bool = field(init=False, default=True, repr=False)
    _chunks: dict[int, torch.Tensor] = field(init=False, default_factory=dict, repr=False)
    _host: torch.Tensor = field(init=False, repr=False)
    _tried: Trial | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.parameters:
            raise ValueError("adamw_many takes at least one parameter")
        self._fill()

    def _fill(self) -> None:
        """Make the table of what the lists hold now, without gradients. Raises as the class does."""
        lists, dtype = self._lists(), self.parameters[0].dtype
        if dtype not in DTYPES:
            raise TypeError(f"adamw_many takes parameters in f32, f16 or bf16, not {dtype}")
        for name, tensors in lists.items():
            _belong(name, tensors, self.parameters, (dtype if "parameter" in name else torch.float32,))
        columns = {name: [t.data_ptr() for t in tensors] for name, tensors in lists.items()}
        sizes = tuple(p.numel() for p in self.parameters)
        for name in columns:
            _each_once(name, columns[name], sizes)
        empty = [0] * len(sizes)
        rows = [columns.get(name, empty) for name in COLUMNS[:-1]] + [list(sizes)]
        self._host = torch.tensor(rows, dtype=torch.int64).T.contiguous()
        self._sizes = sizes
        self._chunks.clear()

    def _lists(self) -> dict[str, Tensors]:
        """Column -> its tensors."""
        old = {"parameter": self.parameters, "average": self.averages, "square": self.squares}
        if self.masters is not None:
            old["master"] = self.masters
        results = self.into or tuple(old.values())
        if len(results) != len(old):
            raise ValueError(f"{len(results)} lists of results, not {len(old)}")
        return old | {f"new_{name}": tensors for name, tensors in zip(old, results, strict=True)}

    def _take(self, gradients: Tensors) -> None:
        """Bring the table up to date, if the memory or dtype of any tensor is another than at the last step."""
        kept = (self.parameters, self.averages, self.squares, self.masters or (), *(self.into or ()))
        own = tuple((t.data_ptr(), t.dtype) for tensors in kept for t in tensors)
        given = tuple((g.data_ptr(), g.dtype, g.shape, g.stride()) for g in gradients)
        if given == self._given and own == self._own:
            return
        if own != self._own or tuple(p.numel() for p in self.parameters) != self._sizes:
            self._own = ()
            self._fill()
        self._given = ()
        _belong("gradient", gradients, self.parameters, (self.parameters[0].dtype, torch.float32))
        self._host[:, 1] = torch.tensor([g.data_ptr() for g in gradients], dtype=torch.int64)
        self._table = self._host.to(self.parameters[0].device)
        filled = self._host[[i for i, size in enumerate(self._sizes) if size], :-1]
        self._aligned = not bool((filled % ALIGNMENT).any())
        self._own, self._given = own, given

    def step(
        self, gradients: Tensors, lr: float, step: int, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, grad_scale: torch.Tensor | None = None, found_inf: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        """Update all in place (or `into`). gradients: of the parameters, in their dtype or all in f32.

        step: from 1 on. grad_scale: one f32 on the device that gradients are divided by; found_inf: one f32 that, if it
        is not 0, leaves everything as it is. Raises as the class does, and ValueError for a step below 1.
        """
        if step < 1:
            raise ValueError(f"steps count from 1, not {step}")
        self._take(gradients)
        for name, t in (("grad_scale", grad_scale), ("found_inf", found_inf)):
            if t is not None and (t.dtype != torch.float32 or t.numel() != 1):
                raise ValueError(f"{name} is one number in f32, not {t.dtype}{[*t.shape]}")
        dtype, gradient = self.parameters[0].dtype, gradients[0].dtype
        constants = (
            ("COLUMNS", len(COLUMNS)), ("DTYPE", DTYPES[dtype]), ("GRADIENT", DTYPES[gradient]),
            ("MASTER", self.masters is not None), ("SCALED", grad_scale is not None),
            ("CHECKED", found_inf is not None), ("ALIGNED", self._aligned),
        )  # fmt: skip
        numbers = (
            1 - lr * weight_decay, lr / (1 - betas[0] ** step), *betas, 1 - betas[0], 1 - betas[1],
            1 / math.sqrt(1 - betas[1] ** step), eps,
        )  # fmt: skip
        scale, skip = (self._table if t is None else t for t in (grad_scale, found_inf))
        key = (min(sum(self._sizes), TRIED), max(self._sizes), dtype, gradient, *(value for _, value in constants[3:]))
        variant = tuner.pick(key, space(constants), launch_trial, self._table, self, scale, skip, numbers)
        self._tried = None
        launch(variant, self._table, self._sizes, self._chunks, scale, skip, numbers)

    def trial(self) -> Trial:
        """At most TRIED elements whose results go elsewhere, so that timing changes no parameter."""
        if self._tried is not None:
            return self._tried
        table, sizes, left = self._host.clone(), [], TRIED
        results = {5: self.parameters[0].dtype, 6: torch.float32, 7: torch.float32, 8: torch.float32}
        for size in self._sizes:
            sizes.append(min(size, left))
            left -= sizes[-1]
        table[:, 9] = torch.tensor(sizes)
        # From multiples of 64 elements on, so that they are as aligned as parameters are.
        ends = torch.tensor([-(-s // 64) * 64 for s in sizes]).cumsum(0)
        starts = torch.cat((torch.zeros(1, dtype=torch.int64), ends[:-1]))
        there = self._table.device
        scratch = [torch.empty(int(ends[-1]), dtype=dtype, device=there) for dtype in results.values()]
        for (column, dtype), room in zip(results.items(), scratch, strict=True):
            table[:, column] = room.data_ptr() + starts * dtype.itemsize
        self._tried = Trial(table.to(there), tuple(sizes), scratch, {})
        return self._tried


def launch_trial(
    variant: Variant, table: torch.Tensor, state: AdamW, scale: torch.Tensor, skip: torch.Tensor,
    numbers: tuple[float, ...],
) -> None:  # fmt: skip
    """Run one variant as `step` would, with results that go elsewhere; table says on which device."""
    trial = state.trial()
    launch(variant, trial.table, trial.sizes, trial.chunks, scale, skip, numbers)


def _belong(name: str, tensors: Tensors, parameters: Tensors, dtypes: tuple[torch.dtype, ...]) -> None:
    """Raises where these are not one for each parameter, in one of the dtypes, laid out as it is and without gaps."""
    if len(tensors) != len(parameters):
        raise ValueError(f"{len(tensors)} tensors of {name} for {len(parameters)} parameters")
    for i, (t, p) in enumerate(zip(tensors, parameters, strict=True)):
        if t.dtype not in dtypes or t.dtype != tensors[0].dtype:
            raise TypeError(f"{name} {i} is {t.dtype}, not {' or '.join(map(str, dtypes))} as all of them")
        if t.device != parameters[0].device:
            raise ValueError(f"{name} {i} is on {t.device}, the first parameter on {parameters[0].device}")
        if t.shape != p.shape or _strides(t) != _strides(p) or not _dense(t):
            raise ValueError(f"{name} {i} is {[*t.shape]} by {t.stride()}, parameter {i} {[*p.shape]} by {p.stride()}")


def _each_once(name: str, addresses: Sequence[int], sizes: Sequence[int]) -> None:
    """Raises ValueError where two tensors with elements begin in one place: their updates would meet there."""
    seen: dict[int, int] = {}
    for i, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        if size and seen.setdefault(address, i) != i:
            raise ValueError(f"{name} {i} is {name} {seen[address]} again: each is given once")


def _strides(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] if t.numel() else []


def _dense(t: torch.Tensor) -> bool:
    """Its elements fill one piece of memory, in whatever order."""
    order = sorted(range(t.dim()), key=t.stride, reverse=True)
    return bool(t.detach().permute(order).is_contiguous())


_kept: dict[tuple[object, ...], tuple[AdamW, Tensors, tuple[torch.Tensor, ...]]] = {}


def run(
    parameter: torch.Tensor, gradient: torch.Tensor, average: torch.Tensor, square: torch.Tensor,
    master: torch.Tensor | None, sizes: tuple[int, ...], lr: float, step: int, betas: tuple[float, float], eps: float,
    weight_decay: float, grad_scale: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """A step over tensors of these sizes that lie end to end in the arguments, which it leaves as they are.

    The state and the parts are made once, as in a training loop, which has them: calls with the same tensors give the
    same results' memory.
    """
    old = (parameter, average, square, *(() if master is None else (master,)))
    dtypes = (parameter.dtype, gradient.dtype)
    key = (*(t.data_ptr() for t in (*old, gradient)), sizes, *dtypes, parameter.device, len(old))
    if key not in _kept:
        _kept.clear()
        new = tuple(torch.empty_like(t) for t in old)
        parts, results = ([torch.split(t, list(sizes)) for t in tensors] for tensors in (old, new))
        masters = None if master is None else parts[3]
        state = AdamW(parts[0], parts[1], parts[2], masters, tuple(results))
        _kept[key] = state, torch.split(gradient, list(sizes)), new
    state, gradients, new = _kept[key]
    state.step(gradients, lr, step, betas, eps, weight_decay, grad_scale)
    return new


def sizes_of(c: Case) -> tuple[int, ...]:
    """Of the parameters of a transformer: for each layer its products and norms, then the embedding."""
    if c.get("sizes"):
        return tuple(c["sizes"])
    h, wide_h = c["hidden"], c["hidden"] * 11 // 4
    layer = (h * h, h * h // 4, h * h // 4, h * h, h * wide_h, h * wide_h, wide_h * h, h, h)
    return (*(layer * c["layers"]), c["words"] * h, h)


def inputs(c: Case, make: Maker) -> tuple[object, ...]:
    """Arguments to try it on."""
    sizes = sizes_of(c)
    count = (sum(sizes),)
    parameter = make.normal(count, c.torch_dtype)
    gradient = make.normal(count, torch.float32 if c.get("wide") else c.torch_dtype, scale=0.1)
    average, square = make.normal(count, torch.float32, scale=0.1), make.normal(count, torch.float32, scale=0.1)
    master = make.normal(count, torch.float32) if c.get("master") else None
    scale = torch.tensor([512.0], device=make.device) if c.get("scaled") else None
    numbers = (1e-3, c.get("step", 7), (0.9, 0.999), 1e-8, 0.01)
    return parameter, gradient, average, square.abs_(), master, sizes, *numbers, scale


def cost(c: Case) -> Cost:
    """Everything read and written once."""
    gradient = 4 if c.get("wide") else c.itemsize
    parameter = c.itemsize + 8 if c.get("master") else 2 * c.itemsize
    return Cost(bytes=sum(sizes_of(c)) * (parameter + gradient + 16))


SIGNATURE = {
    "table_ptr": "*i64", "chunks_ptr": "*i64", "scale_ptr": "*fp32", "skip_ptr": "*fp32",
    **dict.fromkeys(("kept", "rate", "beta1", "beta2", "part1", "part2", "depth", "eps"), "fp32"),
}  # fmt: skip


def _build(index: int, dtype: torch.dtype, master: bool, aligned: bool) -> Build:
    constants = (
        ("COLUMNS", len(COLUMNS)), ("DTYPE", DTYPES[dtype]), ("GRADIENT", DTYPES[dtype]), ("MASTER", master),
        ("SCALED", master), ("CHECKED", master), ("ALIGNED", aligned),
    )  # fmt: skip
    return Build(space(constants)[index], SIGNATURE)


MIXED = (1, 1000, 0, 4096, 3, 2500)
OPERATIONS = (
    Operation(
        name="adamw_many", run=run, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", sizes=((1 << 31) + 4099,)),
        checks=(
            *(case(d, sizes=s) for d in ("f32", "f16", "bf16") for s in (MIXED, (1,), (5000, 7, 9))),
            case("bf16", sizes=MIXED, master=True, scaled=True), case("bf16", sizes=MIXED, wide=True),
            case("f32", sizes=(4096, 2048), step=1), case("f32", sizes=(0, 0)),
            case("bf16", sizes=(3000, 5, 4100), master=True),
        ),
        cases=(
            case("f32", layers=8, hidden=2048, words=32000), case("f32", layers=48, hidden=256, words=8000),
            case("bf16", layers=8, hidden=2048, words=32000),
            case("bf16", layers=8, hidden=2048, words=32000, master=True),
        ),
        builds=(_build(1, torch.float32, False, True), _build(2, torch.bfloat16, True, True),
                _build(1, torch.bfloat16, False, False)),
    ),
)  # fmt: skip
