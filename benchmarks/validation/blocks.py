"""Traced models written again with plain torch, their parts in the form of functions that can be replaced.

Each is written as its trace in tests/data/traces shows that it was run, operation by operation
(tests/benchmarks/validation/test_blocks.py holds the two together). All are inference in bf16. Weights are random and
seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[..., tuple[Tensor, ...]]
"""Tensors in, tensors out."""


@dataclass(frozen=True, slots=True)
class Part:
    """A function of a model that something else can take the place of.

    whole: as eager runs it. alone: each output computed by itself, for outputs that what takes its place does not give.
    """

    whole: Function
    alone: tuple[Callable[..., Tensor], ...] = ()


def _wide(x: Tensor) -> Tensor:
    """As f32; a float64 reference of the model stays float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    """`run[name](*tensors)` is what runs for a part: eager's own until `place` puts something else there."""

    parts: Mapping[str, Part]

    def __init__(self, parts: Mapping[str, Part]) -> None:
        super().__init__()
        self.parts = parts
        self.run: dict[str, Function] = {}
        self.place({})

    def place(self, functions: Mapping[str, Function]) -> None:
        """These in the place of the parts of their names, eager's own everywhere else."""
        self.run = {name: part.whole for name, part in self.parts.items()} | dict(functions)

    def inputs(self) -> tuple[Tensor, ...]:
        """One step's, random."""
        raise NotImplementedError

    def weight(self, *shape: int, fan_in: int | None = None) -> nn.Parameter:
        """Normal numbers over the root of the fan-in, the last dimension's size unless told."""
        return nn.Parameter(torch.randn(shape) / math.sqrt(fan_in or shape[-1]), requires_grad=False)

    def gain(self, size: int) -> nn.Parameter:
        """A norm's weight or a bias: round 1."""
        return nn.Parameter(1 + 0.1 * torch.randn(size), requires_grad=False)

    def stack(self, layers: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Layers of weights by name: matrices, and gains of one dimension."""
        self.layers = nn.ModuleList(
            nn.ParameterDict({n: self.weight(*s) if len(s) > 1 else self.gain(*s) for n, s in shapes.items()})
            for _ in range(layers)
        )

    def stacked(self) -> Iterator[Mapping[str, Tensor]]:
        return cast("Iterator[Mapping[str, Tensor]]", iter(self.layers))


# ---------------------------------------------------------------------------------------------- hand-rolled blocks


def handrolled_norm(x: Tensor, w: Tensor) -> tuple[Tensor]:
    """RMSNorm by hand: x [..., hidden], w [hidden]."""
    inv = torch.rsqrt(_wide(x).pow(2).mean(-1, keepdim=True) + 1e-6)
    return (x * inv.to(x.dtype) * w,)


def handrolled_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor]:
    """Attention by hand with an additive bias: q, k, v [batch, heads, tokens, width], bias [heads, tokens, tokens]."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (torch.softmax(scores + bias, dim=-1) @ v,)


def gemm_gelu_mask(x: Tensor, w: Tensor, b: Tensor, mask: Tensor) -> tuple[Tensor]:
    """x [..., hidden], w [ff, hidden], b [ff], mask [..., ff]."""
    return (F.gelu(x @ w.t() + b) * mask,)


@dataclass(frozen=True, slots=True)
class BlocksSizes:
    """Of handrolled_blocks_bf16_eager."""

    layers: int = 4
    batch: int = 4
    tokens: int = 2048
    hidden: int = 2048
    heads: int = 16
    ff: int = 8192


class Blocks(Model):
    """Transformer blocks as people write them: inputs x [batch, tokens, hidden], bias and mask of its parts."""

    def __init__(self, sizes: BlocksSizes) -> None:
        super().__init__({"norm": Part(handrolled_norm), "attention": Part(handrolled_attention),
                          "up": Part(gemm_gelu_mask)})  # fmt: skip
        self.sizes, hidden, ff = sizes, sizes.hidden, sizes.ff
        self.stack(
            sizes.layers,
            {
                "norm1": (hidden,), "qkv": (3 * hidden, hidden), "qkv_b": (3 * hidden,), "out": (hidden, hidden),
                "out_b": (hidden,), "norm2": (hidden,), "up": (ff, hidden), "up_b": (ff,), "down": (hidden, ff),
                "down_b": (hidden,),
            },
        )  # fmt: skip

    def inputs(self) -> tuple[Tensor, ...]:
        s = self.sizes
        mask = (torch.rand(s.batch, s.tokens, s.ff) < 0.9).float()
        return torch.randn(s.batch, s.tokens, s.hidden), torch.randn(s.heads, s.tokens, s.tokens), mask

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        heads = self.sizes.heads
        for p in self.stacked():
            (h,) = self.run["norm"](x, p["norm1"])
            qkv = F.linear(h, p["qkv"], p["qkv_b"]).view(batch, tokens, 3, heads, hidden // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            (a,) = self.run["attention"](q, k, v, bias)
            x = x + F.linear(a.transpose(1, 2).reshape(batch, tokens, hidden), p["out"], p["out_b"])
            (h,) = self.run["norm"](x, p["norm2"])
            (h,) = self.run["up"](h, p["up"], p["up_b"], mask)
            x = x + F.linear(h, p["down"], p["down_b"])
        return x


# ------------------------------------------------------------------------------------------------------------ Llama


def llama_norm(x: Tensor, w: Tensor) -> tuple[Tensor]:
    """RMSNorm as in transformers: x [..., hidden], w [hidden]."""
    z = _wide(x)
    z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (w * z.to(x.dtype),)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor]:
    """x [batch, tokens, heads, width] -> [batch, heads, tokens, width]; cos, sin [1, 1, tokens, width]."""
    x = x.transpose(1, 2)
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return (x * cos + torch.cat((-second, first), dim=-1) * sin,)


def into_cache(x: Tensor) -> tuple[Tensor]:
    """The first write into an empty cache, as transformers does it: a copy by concatenation."""
    return (torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), x], dim=-2),)


def swiglu(gate: Tensor, up: Tensor) -> tuple[Tensor]:
    """gate, up [..., ff]."""
    return (F.silu(gate) * up,)


def llama_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor]:
    """transformers' attn_implementation="eager": q, k, v [batch, heads, tokens, width], mask [batch, 1, tokens, ..]."""
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask
    p = torch.softmax(scores, dim=-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    return (torch.matmul(F.dropout(p, 0.0, training=False), v),)


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """Of llama_prefill_bf16_eager. eager_attention: by hand, as in llama_eager_attention_prefill."""

    layers: int = 8
    batch: int = 4
    tokens: int = 2048
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 8
    ff: int = 5632
    vocabulary: int = 32000
    eager_attention: bool = False


class Llama(Model):
    """Prefill of a Llama with grouped-query attention: ids [batch, tokens] -> logits [batch, tokens, vocabulary]."""

    def __init__(self, sizes: LlamaSizes) -> None:
        parts = {"norm": Part(llama_norm), "rope": Part(rope), "swiglu": Part(swiglu), "cache": Part(into_cache)}
        super().__init__(parts | ({"attention": Part(llama_attention)} if sizes.eager_attention else {}))
        self.sizes, hidden = sizes, sizes.hidden
        self.width = hidden // sizes.heads
        kv = self.width * sizes.kv_heads
        self.stack(
            sizes.layers,
            {
                "norm1": (hidden,), "q": (hidden, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, hidden),
                "norm2": (hidden,), "gate": (sizes.ff, hidden), "up": (sizes.ff, hidden), "down": (hidden, sizes.ff),
            },
        )  # fmt: skip
        self.table = self.weight(sizes.vocabulary, hidden, fan_in=1)
        self.norm, self.head = self.gain(hidden), self.weight(sizes.vocabulary, hidden)
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(0, self.width, 2) / self.width))
        self.frequencies: Tensor

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(self.sizes.vocabulary, (self.sizes.batch, self.sizes.tokens)),)

    def forward(self, ids: Tensor) -> Tensor:
        batch, tokens = ids.shape
        s, run = self.sizes, self.run
        x = F.embedding(ids, self.table)
        positions = torch.arange(tokens, device=ids.device) + 0
        mask = self.mask(ids, x.dtype) if s.eager_attention else None
        cos, sin = (t.unsqueeze(1) for t in self.rotary(positions[None], x.dtype))
        for p in self.stacked():
            (h,) = run["norm"](x, p["norm1"])
            q, k, v = (F.linear(h, p[name]).view(batch, tokens, -1, self.width) for name in "qkv")
            (q,), (k,) = run["rope"](q, cos, sin), run["rope"](k, cos, sin)
            (k,), (v,) = run["cache"](k), run["cache"](v.transpose(1, 2))
            a = self.attention(q, k, v, mask).transpose(1, 2).contiguous()
            x = x + F.linear(a.reshape(batch, tokens, -1), p["o"])
            (h,) = run["norm"](x, p["norm2"])
            (h,) = run["swiglu"](F.linear(h, p["gate"]), F.linear(h, p["up"]))
            x = x + F.linear(h, p["down"])
        (x,) = run["norm"](x, self.norm)
        return F.linear(x, self.head)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.width**-0.5, enable_gqa=True)
        batch, _, tokens, width = k.shape
        wanted = (batch, k.shape[1], self.sizes.heads // k.shape[1], tokens, width)
        k, v = (t[:, :, None].expand(wanted).reshape(batch, self.sizes.heads, tokens, width) for t in (k, v))
        (a,) = self.run["attention"](q, k, v, mask)
        return a

    def mask(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """[batch, 1, tokens, tokens]: 0 where a token sees another. transformers numbers batch and heads as well."""
        batch, tokens = ids.shape
        _, _, rows, columns = (torch.arange(size, device=ids.device) for size in (batch, 1, tokens, tokens))
        rows, columns = rows + 0, columns + 0
        seen = (columns[None, None, None, :] <= rows[None, None, :, None]).expand(batch, -1, tokens, tokens)
        zero = torch.tensor(0.0, device=ids.device, dtype=dtype)
        return torch.where(seen, zero, torch.finfo(dtype).min)

    def rotary(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [1, tokens, width]."""
        inverse = _wide(self.frequencies[None, :, None].expand(positions.shape[0], -1, 1))
        angles = (inverse @ positions[:, None, :].to(inverse.dtype)).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos() * 1.0, angles.sin() * 1.0
        return cos.to(dtype), sin.to(dtype)


# -------------------------------------------------------------------------------------------------------------- ViT

EPSILON = 1e-6


def gemm_gelu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor]:
    """x [..., hidden], w [ff, hidden], b [ff]."""
    return (F.gelu(F.linear(x, w, b)),)


def add_norm(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The residual's sum, which goes on to the next one, and its LayerNorm."""
    total = residual + x
    return total, F.layer_norm(total, w.shape, w, b, EPSILON)


def embed_norm(first: Tensor, patches: Tensor, places: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The class token before the patches, with their places added, and the LayerNorm of that."""
    total = torch.cat([first, patches], dim=1) + places
    return total, F.layer_norm(total, w.shape, w, b, EPSILON)


@dataclass(frozen=True, slots=True)
class ViTSizes:
    """Of timm_vit_base_bf16_eager."""

    layers: int = 12
    batch: int = 64
    image: int = 224
    patch: int = 16
    hidden: int = 768
    heads: int = 12
    ff: int = 3072
    classes: int = 1000


class ViT(Model):
    """Vision transformer: images [batch, 3, image, image] -> [batch, classes]."""

    def __init__(self, sizes: ViTSizes) -> None:
        super().__init__({
            "up": Part(gemm_gelu),
            "add_norm": Part(add_norm, (lambda x, residual, w, b: residual + x, lambda *t: add_norm(*t)[1])),
            "embed_norm": Part(
                embed_norm,
                (lambda first, patches, places, w, b: torch.cat([first, patches], 1) + places,
                 lambda *t: embed_norm(*t)[1]),
            ),
        })  # fmt: skip
        self.sizes, hidden, ff = sizes, sizes.hidden, sizes.ff
        self.patch = self.weight(hidden, 3, sizes.patch, sizes.patch, fan_in=3 * sizes.patch**2)
        self.patch_b, self.first = self.gain(hidden), self.weight(1, 1, hidden, fan_in=1)
        self.places = self.weight(1, (sizes.image // sizes.patch) ** 2 + 1, hidden, fan_in=1)
        self.norms = nn.ParameterList(self.gain(hidden) for _ in range(2 * (2 * sizes.layers + 1)))
        self.stack(
            sizes.layers,
            {
                "qkv": (3 * hidden, hidden), "qkv_b": (3 * hidden,), "out": (hidden, hidden), "out_b": (hidden,),
                "up": (ff, hidden), "up_b": (ff,), "down": (hidden, ff), "down_b": (hidden,),
            },
        )  # fmt: skip
        self.head, self.head_b = self.weight(sizes.classes, hidden), self.gain(sizes.classes)

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(self.sizes.batch, 3, self.sizes.image, self.sizes.image),)

    def forward(self, images: Tensor) -> Tensor:
        s, run = self.sizes, self.run
        patches = F.conv2d(images, self.patch, self.patch_b, stride=s.patch).flatten(2).transpose(1, 2)
        norms = list(zip(self.norms[::2], self.norms[1::2], strict=True))
        first = self.first.expand(s.batch, -1, -1)
        x, h = run["embed_norm"](first, patches, self.places, *norms[0])
        tokens = x.shape[1]
        for number, p in enumerate(self.stacked()):
            qkv = F.linear(h, p["qkv"], p["qkv_b"]).reshape(s.batch, tokens, 3, s.heads, s.hidden // s.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(s.batch, tokens, s.hidden)
            x, h = run["add_norm"](F.linear(a, p["out"], p["out_b"]), x, *norms[2 * number + 1])
            (h,) = run["up"](h, p["up"], p["up_b"])
            x, h = run["add_norm"](F.linear(h, p["down"], p["down_b"]), x, *norms[2 * number + 2])
        return F.linear(h[:, 0], self.head, self.head_b)


# --------------------------------------------------------------------------------------------------------- the cases


@dataclass(frozen=True, slots=True)
class Case:
    """A traced model. trace: its file's name without .json.gz. make: the model at its traced sizes, or at tiny ones."""

    trace: str
    make: Callable[[bool], Model]


_SMALL: dict[str, Any] = {"layers": 2, "batch": 2, "hidden": 32, "heads": 4, "ff": 64}
_SMALL_BLOCKS = _SMALL | {"tokens": 16}
_SMALL_LLAMA = _SMALL_BLOCKS | {"kv_heads": 2, "vocabulary": 64}
_EAGER: dict[str, Any] = {"layers": 4, "batch": 2, "tokens": 1024, "eager_attention": True}

CASES: Mapping[str, Case] = {
    "handrolled": Case(
        "handrolled_blocks_bf16_eager_stack", lambda small: Blocks(BlocksSizes(**(_SMALL_BLOCKS if small else {})))
    ),
    "llama": Case("llama_prefill_bf16_eager_stack", lambda small: Llama(LlamaSizes(**(_SMALL_LLAMA if small else {})))),
    "llama-eager-attention": Case(
        "llama_eager_attention_prefill",
        lambda small: Llama(LlamaSizes(**(_EAGER | (_SMALL_LLAMA if small else {})))),
    ),
    "vit": Case(
        "timm_vit_base_bf16_eager",
        lambda small: ViT(ViTSizes(**(_SMALL | {"image": 32, "classes": 8} if small else {}))),
    ),
}


def make(name: str, small: bool, device: str, dtype: torch.dtype = torch.bfloat16) -> tuple[Model, tuple[Tensor, ...]]:
    """The model and its inputs on the device, floating tensors in dtype; equal in every process."""
    torch.manual_seed(0)
    with torch.device(device):
        model = CASES[name].make(small)
        model.to(dtype)
        inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in model.inputs())
    return model, inputs
