"""Dropout from a seed: y = x / (1 - p) where a random word is large enough, else 0. Nothing is kept for the backward.

Element e takes word e % 4 of Philox 4x32-10 for counter offset + e // 4 and the seed as key: the words that
`tl.randint4x(seed, offset + e // 4)` gives, and that the reference computes with integers of PyTorch, so that both
agree to the last bit. The backward is the same function of dy. Traffic: x read once, y written once, 2 n itemsize
bytes; a mask of torch's own dropout adds a byte an element each way. One call of Philox for four elements: with one
for each, its twenty wide multiplications would take longer than the element's way from memory and back.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.shared.pairs import INTERPRETED
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("dropout")

WORD = 0xFFFFFFFF


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low word of a * b for 32-bit words in int64: in halves of a, since int64 has no 64 unsigned bits."""
    low, high = (a & 0xFFFF) * b, (a >> 16) * b
    middle = high + (low >> 16)
    return middle >> 16, ((middle << 16) | (low & 0xFFFF)) & WORD


def philox(seed: int, counter: torch.Tensor) -> torch.Tensor:
    """Philox 4x32-10 (Salmon et al., 2011) for key `seed` and int64 counters [n]: words [n, 4] in int64."""
    k0, k1 = seed & WORD, seed >> 32 & WORD
    c0, c1 = counter & WORD, counter >> 32 & WORD
    c2 = c3 = torch.zeros_like(counter)
    for _ in range(10):
        (high0, low0), (high2, low2) = _product(0xD2511F53, c0), _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return torch.stack((c0, c1, c2, c3), -1)


def threshold(p: float) -> int:
    """Words below it are dropped."""
    return min(round(p * 2**32), 2**32)


def reference(x: torch.Tensor, p: float, seed: int, offset: int = 0) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    counter = torch.arange(offset, offset + (x.numel() + 3) // 4, device=x.device)
    keep = (philox(seed, counter).view(-1)[: x.numel()] >= threshold(p)).view(x.shape)
    return torch.where(keep, x * (1 / (1 - p)) if p < 1 else x, 0.0)


@triton.jit
def wide_product(x, factor: tl.constexpr):
    """Low and high word of x * factor, uint32: one instruction, where the two asked for separately are two."""
    if target_info.is_cuda() and not INTERPRETED:
        return tl.inline_asm_elementwise(
            "{ .reg .b64 w; mul.wide.u32 w, $2, $3; mov.b64 {$0, $1}, w; }", "=r,=r,r,r",
            [x, tl.full(x.shape, factor, tl.uint32)], dtype=(tl.uint32, tl.uint32), is_pure=True, pack=1,
        )  # fmt: skip
    return tl.mul(x, factor, sanitize_overflow=False), tl.umulhi(x, tl.full(x.shape, factor, tl.uint32))


@triton.jit
def words_of(seed_low, seed_high, offset, first, COUNT: tl.constexpr):
    """The words of COUNT elements from element `first`, a multiple of 4, in order, as uint32."""
    k0 = seed_low.to(tl.uint32, bitcast=True)
    k1 = seed_high.to(tl.uint32, bitcast=True)
    counter = offset + first // 4 + tl.arange(0, COUNT // 4)
    c0 = counter.to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    c2 = tl.zeros((COUNT // 4,), tl.uint32)
    c3 = tl.zeros((COUNT // 4,), tl.uint32)
    for _ in tl.static_range(10):
        low0, high0 = wide_product(c0, 0xD2511F53)
        low2, high2 = wide_product(c2, 0xCD9E8D57)
        c0 = high2 ^ c1 ^ k0
        c2 = high0 ^ c3 ^ k1
        c1 = low2
        c3 = low0
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return tl.reshape(tl.join(tl.join(c0, c2), tl.join(c1, c3)), (COUNT,))


@triton.jit(do_not_specialize=("seed_low", "seed_high", "offset", "least"))
def dropout_kernel(x_ptr, y_ptr, n, scale, seed_low, seed_high, offset, least, BLOCK: tl.constexpr):
    """BLOCK elements a program. least: smallest word that is kept, its bits as int32."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    words = words_of(seed_low, seed_high, offset, first, BLOCK)
    keep = words >= least.to(tl.uint32, bitcast=True)
    tl.store(y_ptr + at, tl.where(keep, x * scale, 0.0), mask=at < n)


SPACE = tuple(
    Variant(dropout_kernel, (("BLOCK", b),), w) for b, w in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 4))
)


def signed(word: int) -> int:
    """The int32 of the same 32 bits."""
    return word - 2**32 if word >= 2**31 else word


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor, p: float, seed: int, offset: int) -> None:
    """Run one variant on two contiguous tensors; 0 <= p < 1."""
    n, low, high = x.numel(), signed(seed & WORD), signed(seed >> 32)
    least = signed(min(threshold(p), WORD))
    dropout_kernel[(triton.cdiv(n, variant["BLOCK"]),)](
        x, y, n, 1 / (1 - p), low, high, offset, least, **variant.meta
    )  # fmt: skip


def drawn_seed() -> int:
    """A seed from torch's generator on the CPU: torch.manual_seed sets what comes. A CUDA graph keeps the one it has
    captured."""
    return int(torch.randint(1 << 62, ()))


def dropout(x: torch.Tensor, p: float, seed: int | None = None, offset: int = 0) -> torch.Tensor:
    """x / (1 - p), each element 0 instead with probability p; x of any shape in f32, f16 or bf16, y contiguous.

    The same seed and offset drop the same elements: one call takes (n + 3) // 4 offsets, so the next call's offset is
    that much larger. 0 <= p <= 1; 0 <= seed < 2^63, None: drawn anew; 0 <= offset < 2^31. A dropped NaN is 0, so p = 1
    gives zeros. A strided x is copied. Raises TypeError for other dtypes, ValueError for other numbers.
    """
    seed = drawn_seed() if seed is None else seed
    if x.dtype not in DTYPES:
        raise TypeError(f"dropout takes f32, f16 or bf16, not {x.dtype}")
    if not (0 <= p <= 1 and 0 <= seed < 2**63 and 0 <= offset < 2**31):
        raise ValueError(f"dropout takes 0 <= p <= 1, seeds to 2^63, offsets to 2^31, not {p}, {seed}, {offset}")
    if p == 1:
        return torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        launch(tuner.pick((x.dtype, x.numel()), SPACE, launch, x, y, p, seed, offset), x, y, p, seed, offset)
    return y


def dropout_backward(dy: torch.Tensor, p: float, seed: int, offset: int = 0) -> torch.Tensor:
    """The gradient of x from that of dropout's result, for the same p, seed and offset; as forward."""
    return dropout(dy, p, seed, offset)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, float, int, int]:
    """Arguments to try it on."""
    return make.normal((c["rows"], c["columns"]), c.torch_dtype), c["p"], c.get("seed", 12345), c.get("offset", 0)


CHECKS = (
    *(case(d, rows=r, columns=n, p=p)
      for d in ("f32", "f16", "bf16")
      for r, n, p in ((0, 8, 0.1), (1, 1, 0.5), (1, 1023, 0.1), (5, 1001, 0.9))),
    *(case("f32", rows=3, columns=700, p=p) for p in (0.0, 1.0, 0.25)),
    case("bf16", rows=3, columns=700, p=0.3, seed=2**62 + 2**31 + 5, offset=2**31 - 200),
    case("f16", rows=3, columns=700, p=0.75, seed=2**32 - 1),
    case("f32", rows=9, columns=500, p=0.4, seed=1),
)  # fmt: skip
CASES = (
    case("bf16", rows=8192, columns=4096, p=0.1),
    case("f32", rows=8192, columns=4096, p=0.1),
    case("bf16", rows=16384, columns=14336, p=0.1),
)
SIGNATURE = {
    "x_ptr": "*bf16", "y_ptr": "*bf16", "n": "i32", "scale": "fp32", "seed_low": "i32", "seed_high": "i32",
    "offset": "i32", "least": "i32",
}  # fmt: skip
OPERATIONS = tuple(
    Operation(
        name=name, run=run, reference=reference, inputs=inputs,
        cost=lambda c: Cost(bytes=2 * c["rows"] * c["columns"] * c.itemsize), checks=CHECKS, cases=CASES,
        builds=tuple(Build(v, SIGNATURE, divisible=("n",)) for v in SPACE[1:2]),
        forms=("plain", "strided", "misaligned", "special"),
    )
    for name, run in (("dropout", dropout), ("dropout_backward", dropout_backward))
)  # fmt: skip
