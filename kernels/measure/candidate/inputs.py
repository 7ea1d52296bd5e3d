"""Real tensors for a region's inputs: seeded the same in every process, laid out as the text says.

One input set is one call's worth; set number, distribution and input name go into each tensor's seed.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
import torch.fx
import torch.nn.functional as F

from profiler.region.language.program import empty_input, shape_of
from profiler.region.language.vocabulary import DTYPES
from profiler.region.model import FLOATING, PACKED, SCALE, Input, Region

DISTRIBUTIONS = ("normal", "uniform", "large", "tiny")
"""normal(0, 1); uniform in (0, 1), which square roots and logarithms accept; large and tiny: scaled normal."""
SPECIAL = "special"
"""normal(0, 1) with rows that hold NaN, inf or -inf, and rows that are zero, constant or -inf throughout."""
LARGE: Mapping[str, float] = {"f16": 8.0, "f8e4m3": 8.0, "f8e5m2": 8.0}
LARGE_DEFAULT = 32.0
TINY = 1e-3
UNBOUNDED_INDEX = 100  # integers of which the text gives no range
MAX_SETS = 256
PIECE = 2**28  # elements that are drawn at once

CONTRACTIONS = frozenset({torch.mm, torch.matmul, torch.bmm, operator.matmul, F.linear, F.conv1d, F.conv2d, F.conv3d})
TRANSPOSES = frozenset({"t", "transpose", "mT", "T", "contiguous", "permute"})


def seed_of(*parts: object) -> int:
    """63 bits from sha256: equal in every process, where hash() is not."""
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


def weight_scales(module: torch.fx.GraphModule) -> dict[str, float]:
    """1/sqrt(fan-in) for inputs that are the second operand of a matrix product or convolution.

    So a chain of products keeps the size of its first operand and does not overflow 16 bits. Operands of more than
    two dimensions of a matrix product are activations (attention's k and v) and stay as they are.
    """
    scales: dict[str, float] = {}
    for node in module.graph.nodes:
        called = node.target in CONTRACTIONS or node.target in (torch.addmm, torch.baddbmm)
        if not called and not (node.op == "call_method" and node.target in ("matmul", "mm")):
            continue
        position = 2 if node.target in (torch.addmm, torch.baddbmm) else 1
        weight = node.args[position] if len(node.args) > position else node.kwargs.get("weight")
        turned = False
        while isinstance(weight, torch.fx.Node) and weight.op == "call_method" and weight.target in TRANSPOSES:
            turned ^= weight.target != "contiguous"
            weight = weight.args[0]
        if not isinstance(weight, torch.fx.Node) or weight.op != "placeholder":
            continue
        shape = tuple(weight.meta["val"].shape)
        rows_out = node.target in (F.linear, F.conv1d, F.conv2d, F.conv3d)
        if len(shape) < 2 or (len(shape) > 2 and not rows_out):
            continue
        fan_in = math.prod(shape[1:]) if rows_out != turned else shape[0]
        scales[str(weight.target)] = 1 / math.sqrt(max(1, fan_in))
    return scales


def input_set(
    region: Region,
    sizes: Mapping[str, int],
    device: str,
    seed: int,
    number: int = 0,
    distribution: str = "normal",
    scales: Mapping[str, float] | None = None,
    fresh: Mapping[str, int] | None = None,
) -> list[torch.Tensor]:
    """One tensor per input, on the device. fresh: other set numbers for named inputs (the sensitivity check)."""
    return list(one_by_one(region, sizes, device, seed, number, distribution, scales, fresh))


def one_by_one(
    region: Region,
    sizes: Mapping[str, int],
    device: str,
    seed: int,
    number: int = 0,
    distribution: str = "normal",
    scales: Mapping[str, float] | None = None,
    fresh: Mapping[str, int] | None = None,
) -> Iterator[torch.Tensor]:
    """The same, each made when it is asked for: where a whole set more does not fit into memory."""
    for item in region.inputs:
        yield one_input(
            item,
            sizes,
            device,
            seed_of(seed, item.name, (fresh or {}).get(item.name, number), distribution, sorted(sizes.items())),
            distribution,
            (scales or {}).get(item.name, 1.0),
            smallest_extent(region, sizes),
        )


def smallest_extent(region: Region, sizes: Mapping[str, int]) -> int:
    """The least dimension above 1 of any input: an index of undeclared range below it fits every table."""
    extents = [s for item in region.inputs for s in shape_of(item, sizes) if s > 1]
    return min(extents, default=1)


def one_input(
    item: Input,
    sizes: Mapping[str, int],
    device: str,
    seed: int,
    distribution: str = "normal",
    scale: float = 1.0,
    index_bound: int = UNBOUNDED_INDEX,
) -> torch.Tensor:
    """One input. Its memory is written whole, so that overlapping strides hold defined values."""
    tensor = empty_input(item, sizes, device)
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = shape_of(item, sizes)
    if item.offsets is not None:
        return _offsets(item, shape, device, generator).to(tensor.dtype)
    overlapping = item.strides is not None and any(
        stride == 0 and size > 1 for stride, size in zip(item.strides, shape, strict=True)
    )
    if tensor.numel() > PIECE and not overlapping and not item.distinct and distribution != SPECIAL:
        for piece in pieces(tensor):
            piece.copy_(_drawn(item, piece.shape, device, generator, distribution, scale, index_bound))
        return tensor
    values = _drawn(item, shape, device, generator, distribution, scale, index_bound)
    if overlapping:
        # copy_ refuses several writes to one place: fill one element of each broadcast dimension
        index = tuple(slice(0, 1) if st == 0 else slice(None) for st in item.strides or ())
        tensor[index].copy_(values[index])
        return tensor
    return tensor.copy_(values)


def pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views of a tensor along its longest dimension, one of a small one: what is made of each is small next to all."""
    if tensor.numel() <= PIECE:
        return iter((tensor,))
    longest = max(range(tensor.dim()), key=lambda d: tensor.shape[d])
    step = max(1, PIECE // (tensor.numel() // tensor.shape[longest]))
    return iter(torch.split(tensor, step, dim=longest))


def _drawn(
    item: Input,
    shape: Sequence[int],
    device: str,
    generator: torch.Generator,
    distribution: str,
    scale: float,
    index_bound: int,
) -> torch.Tensor:
    if item.ones is not None:
        return torch.rand(shape, device=device, generator=generator) < item.ones
    if item.dtype == "bool":
        return torch.rand(shape, device=device, generator=generator) < 0.5
    if item.dtype in PACKED or item.dtype == SCALE:
        return _packed(item, shape, device, generator)
    if item.dtype in FLOATING:
        return _floats(item, shape, device, generator, distribution, scale)
    return _integers(item, shape, device, generator, index_bound)


def _floats(
    item: Input, shape: Sequence[int], device: str, generator: torch.Generator, distribution: str, scale: float
) -> torch.Tensor:
    wide = torch.float64 if item.dtype == "f64" else torch.float32
    if distribution == "uniform":
        # a little above 0: 1/x and log(x) stay finite in 16 bits
        return torch.rand(shape, device=device, generator=generator, dtype=wide).mul_(0.98).add_(0.01).mul_(scale)
    values = torch.randn(shape, device=device, generator=generator, dtype=wide)
    weight = scale != 1.0
    factor = {"large": 1.0 if weight else LARGE.get(item.dtype, LARGE_DEFAULT), "tiny": TINY}.get(distribution, 1.0)
    values.mul_(scale * factor)
    return _planted(values) if distribution == SPECIAL and not weight else values


def _packed(item: Input, shape: Sequence[int], device: str, generator: torch.Generator) -> torch.Tensor:
    """Bits: any pair of f4 numbers, or a scale from 2**-3 to 2**3. Torch converts nothing to f4."""
    low, high = (0, 256) if item.dtype in PACKED else (124, 131)
    bits = torch.randint(low, high, tuple(shape), device=device, generator=generator, dtype=torch.uint8)
    return bits.view(DTYPES[item.dtype])


def _planted(values: torch.Tensor) -> torch.Tensor:
    """Special values in the first rows, in place. One row alone (a weight, a bias) stays: NaN there is NaN all over."""
    if values.dim() < 2 or not values.numel():
        return values
    rows = values.view(-1, values.shape[-1])
    if len(rows) < 2:
        return values
    middle = rows.shape[1] // 2
    # By number: to iterate over a tensor makes a view of every row, seconds where there are a million.
    for number, special in enumerate((math.nan, math.inf, -math.inf)[: len(rows)]):
        rows[number, middle] = special
    for number, constant in enumerate((0.0, 1.5, -math.inf)[: max(0, len(rows) - 3)], 3):
        rows[number] = constant
    return values


def _integers(
    item: Input, shape: Sequence[int], device: str, generator: torch.Generator, index_bound: int
) -> torch.Tensor:
    low, high = 0, item.below if item.below is not None else min(UNBOUNDED_INDEX, index_bound)
    if item.below is None and item.dtype == "i8":
        low, high = -128, 128
    elif item.below is None and item.dtype == "u8":
        high = 256
    count = math.prod(shape)
    if item.distinct and count <= high - low:
        order = torch.randperm(high - low, device=device, generator=generator)
        return order[:count].add_(low).reshape(tuple(shape))
    return torch.randint(low, max(high, low + 1), tuple(shape), device=device, generator=generator)


def _offsets(item: Input, shape: Sequence[int], device: str, generator: torch.Generator) -> torch.Tensor:
    """Sorted, from 0 to item.offsets; made on the CPU, since a sort there costs nothing at these sizes."""
    total = int(item.offsets or 0)
    count = math.prod(shape)
    inner = torch.randint(0, total + 1, (max(0, count - 2),), device=device, generator=generator).sort().values
    ends = torch.tensor([0, total], device=device)
    return torch.cat([ends[:1], inner, ends[1:]])[:count].reshape(tuple(shape))


def set_bytes(region: Region, sizes: Mapping[str, int]) -> int:
    """Bytes that one input set occupies."""
    total = 0
    for item in region.inputs:
        fake = torch.empty(0, dtype=empty_input(item, sizes, "meta").dtype)
        total += empty_input(item, sizes, "meta").untyped_storage().nbytes() or fake.element_size()
    return total


def renewed_bytes(region: Region, sizes: Mapping[str, int]) -> int:
    """The most that `refill` takes at a time: one input more, and what it is drawn as before it has its type."""
    return max((_drawn_bytes(item, sizes) for item in region.inputs), default=0)


def _drawn_bytes(item: Input, sizes: Mapping[str, int]) -> int:
    fake = empty_input(item, sizes, "meta")
    drawn_as = torch.float32 if item.dtype in FLOATING or item.dtype == "bool" else torch.int64
    drawn_as = torch.float64 if item.dtype == "f64" else drawn_as
    elements = max(fake.numel(), item.below or 0) if item.distinct else min(fake.numel(), PIECE)
    return int(fake.untyped_storage().nbytes()) + elements * drawn_as.itemsize


def has_index(region: Region) -> bool:
    """Some input is read through indices: then a call touches less than the inputs' bytes."""
    return any(i.below is not None for i in region.inputs)


def set_count(bytes_per_set: int, l2_bytes: float, memory_bytes: float) -> int:
    """How many sets to rotate so that a call finds none of its inputs in L2: together three times L2 and at least two.

    1 where two do not fit into memory_bytes: a set that large evicts itself.
    """
    wanted = max(2, math.ceil(3 * l2_bytes / max(1, bytes_per_set)))
    fits = int(memory_bytes // max(1, bytes_per_set))
    return max(1, min(wanted, fits, MAX_SETS))


def poisoned(bytes_wanted: int, device: str) -> torch.Tensor:
    """Bytes that read as NaN in every floating type: a fill with NaN of one width leaves zeros in a narrower one."""
    return torch.full((max(1, bytes_wanted),), 0xFF, dtype=torch.uint8, device=device)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Bit for bit, NaN equal to itself. Large ones in pieces: what a comparison writes is half of 16 bits."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[first.element_size()]
    one, other = first.detach().view(width), second.detach().view(width)
    if one.numel() <= PIECE or one.shape != other.shape:
        return bool(torch.equal(one, other))
    return all(torch.equal(a, b) for a, b in zip(pieces(one), pieces(other), strict=True))


def refill(values: Sequence[torch.Tensor], made: Iterable[torch.Tensor]) -> None:
    """New contents in the same memory, under the same version: a result kept by address or version is stale then.

    made: tensors of the same layouts; none of them is there any more when the next is drawn. zip would keep it: its
    tuple of the last step stays until the next one is filled.
    """
    coming = iter(made)
    for value in values:
        new = next(coming, None)
        if new is None:
            raise ValueError("fewer contents than there are inputs")
        value.untyped_storage().copy_(new.untyped_storage())
        del new
    if next(coming, None) is not None:
        raise ValueError("more contents than there are inputs")
