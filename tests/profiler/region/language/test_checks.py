"""What fake tensors accept and a GPU refuses is refused here; what real tensors take is taken.

`CPU` holds what torch's own CPU kernels refuse too: the test asks them. `CUDA` holds what they take and CUDA's do not,
each with the message that CUDA gives or the line of torch that makes it so.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from profiler.region.language import vocabulary
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError

OPERANDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "x": ("bf16", (8, 4)), "f": ("f32", (8, 4)), "h": ("f16", (8, 4)), "w": ("bf16", (4, 8)), "i": ("i64", (8, 4)),
    "j": ("i32", (8, 4)), "s": ("i16", (8, 4)), "b": ("bool", (8, 4)), "u": ("u8", (8, 4)), "q": ("i8", (8, 4)),
    "e": ("f8e4m3", (8, 4)), "v": ("bf16", (4,)), "vf": ("f32", (4,)), "t": ("i64", (8,)), "t32": ("i32", (8,)),
    "t16": ("i16", (8,)), "im": ("bf16", (2, 4, 6, 6)), "imf": ("f32", (2, 4, 6, 6)), "k": ("bf16", (4, 4, 3, 3)),
    "kf": ("f32", (4, 4, 3, 3)), "kb": ("f32", (4,)), "q4": ("bf16", (2, 2, 4, 8)), "q4f": ("f32", (2, 2, 4, 8)),
    "mb": ("bool", (4, 4)), "mi": ("i64", (4, 4)), "tab": ("f32", (10, 4)), "a3": ("bf16", (2, 8, 4)),
    "b3": ("f32", (2, 4, 8)), "p": ("f32", (8,)), "c": ("f32", (8, 3)), "m32": ("i8", (32, 16)), "m16": ("i8", (16, 8)),
    "m8": ("i8", (8, 16)), "img": ("i64", (1, 4, 6, 6)),
}  # fmt: skip

CPU: tuple[str, ...] = (
    # matrix products of two dtypes: the fakes of mm and addmm do not compare them
    "x @ f.T", "mm(x, f.T)", "linear(x, f)", "linear(x, x, p)", "addmm(f, x, w)", "bmm(a3, b3)", "matmul(a3, b3)",
    "einsum('ij,kj->ik', x, f)", "torch.mv(x, vf)", "torch.dot(v, vf)", "tensordot(x, f, 1)", "b @ b.T",
    # softmax
    "softmax(x, dim=5)", "softmax(i, -1)", "log_softmax(i, 0)", "softmax(f, -3)", "aten._softmax(i, -1, False)",
    # functions of floats
    "gelu(i)", "silu(b)", "i.mean()", "i.var()", "i.std()", "i.norm()", "layer_norm(i, [4])", "rms_norm(i, [4])",
    "mse_loss(i, i)", "l1_loss(i, i)", "smooth_l1_loss(i, i)", "lerp(i, i, 0.5)", "glu(i)",
    "bernoulli(i)", "multinomial(i, 2)", "dropout(i)",
    "hypot(i, i)", "logaddexp(i, i)", "rand_like(i)", "logcumsumexp(i, 0)", "frac(i)",
    # bits, bools, integers
    "x & 1", "~x", "x << 1", "f ^ f", "x | b", "b - b", "b - 1", "1 - b", "-b", "abs(b)", "floor(b)", "relu(b)",
    "argmax(b)", "topk(b, 2)[0]", "b // b", "b ** b", "b << b", "gcd(f, f)", "lcm(x, x)", "i ** -1", "i.add_(f)",
    "i ** -2",
    # fp8
    "e + e", "e * 2", "e.sum()", "softmax(e, -1)", "relu(e)", "e.exp()",
    # indices
    "gather(x, 1, s)", "gather(x, 1, f)", "x.index_select(0, t16)", "embedding(t16, tab)", "embedding(p, tab)",
    "x[t16]", "x[p]", "x.index_add(0, t16, x)", "x.index_copy(0, t32, x)", "take(x, t32)",
    "repeat_interleave(x, t16, dim=0, output_size=8)", "one_hot(t32, 10)", "one_hot(p, 10)",
    # a source in another dtype
    "x.scatter(1, i, f)", "x.scatter_add(1, i, f)", "x.index_add(0, t, f)", "x.index_put((t,), f)",
    # masks
    "x.masked_fill(u, 0.0)", "x.masked_fill(i, 0.0)", "where(i, x, x)", "where(x, x, x)",
    # losses
    "cross_entropy(f, t32)", "cross_entropy(f, p)", "cross_entropy(i, t)", "cross_entropy(f, t, v)",
    "nll_loss(f, t32)", "binary_cross_entropy(f, x)",
    # convolutions, pooling, attention
    "conv2d(im, kf)", "conv2d(im, k, kb)", "conv2d(imf, kf, groups=2)", "conv2d(imf, kf, stride=0)",
    "avg_pool2d(im, 9)", "group_norm(im, 3)", "pad(im, (9, 9), mode='reflect')",
    "scaled_dot_product_attention(q4, q4f, q4)", "scaled_dot_product_attention(q4, q4, q4, attn_mask=mi)",
    # sizes and dimensions
    "sort(f, 3)[0]", "topk(f, 5)[0]", "kthvalue(f, 9)[0]", "multinomial(c, 4)", "cumsum(f, 2)", "logsumexp(f, 2)",
    "bucketize(f, f)", "x + v[:3]", "x.expand(2, 7, 4)", "x.permute(0, 0)", "torch._int_mm(x, w)",
)  # fmt: skip

CUDA: dict[str, str] = {
    "i @ i.T": "\"addmm_cuda\" not implemented for 'Long'",
    "q @ q.T": "\"addmm_cuda\" not implemented for 'Char'",
    "einsum('ij,kj->ik', i, i)": "baddbmm of integers, as @",
    "layer_norm(x, [4], vf, vf)": "expected scalar type BFloat16 but found Float",
    "group_norm(im, 2, vf, vf)": "expected scalar type BFloat16 but found Float",
    "max_pool2d(img, 2)": '"max_pool2d_with_indices_out_cuda_frame" is for floating types',
    "avg_pool2d(img, 2)": '"avg_pool2d_out_cuda_frame" is for floating types',
    "pad(i[None], (1, 1), mode='reflect')": '"reflection_pad1d_out_template" is for floating types',
    "e @ e.T": "\"addmm_cuda\" not implemented for 'Float8_e4m3fn'",
    "torch._int_mm(m8, m16)": "self.size(0) needs to be greater than 16",
}

TAKEN: tuple[str, ...] = (
    "x @ w", "x @ f.T.to(bf16)", "i.mean(dtype=f32)", "i.softmax(-1, dtype=f32)", "softmax(x, dim=-2)", "i & 1", "~b",
    "b & b", "i << 1", "b + b", "b * b", "b // 1", "b % 1", "i ** 2", "i ** -1.0", "2 ** i", "x ** -1", "e.float()",
    "e.T", "e[2:]", "cat([e, e])", "stack([e, e])", "e == e", "e.to(bf16) + 1", "x.to(f8e4m3)", "gather(x, 1, j)",
    "gather(x, 1, i)", "x.index_select(0, t32)", "embedding(t32, tab)", "x[t32]", "x.scatter(1, i, 1.0)",
    "x.scatter_add(1, j, x)", "x.scatter_reduce(1, i, x, 'amax')", "x.index_add(0, t32, x)",
    "x.index_put((t,), x, accumulate=True)", "x.masked_fill(b, 0.0)", "where(b, x, f)", "where(b, 1.0, x)",
    "cross_entropy(f, t)", "cross_entropy(f, f)", "cross_entropy(f, t, vf)", "mse_loss(x, f)", "cat([x, f])",
    "stack([x, f])", "layer_norm(x, [4], v, v)", "batch_norm(im, kb, kb, kb, kb)",
    "conv2d(imf, kf, kb)", "interpolate(im, scale_factor=2)", "cumsum(b, 0)", "cumprod(i, 0)", "sort(b)[0]",
    "sort(f, 1)[0]",
    "bernoulli(f)", "multinomial(c, 2)", "multinomial(c, 9, True)", "repeat_interleave(x, 2, dim=0)", "i / 2",
    "isnan(i)",
    "scaled_dot_product_attention(q4, q4, q4, attn_mask=mb)", "torch._int_mm(m32, m16)", "maximum(x, f)",
    "x.type_as(f)",
    "x.view(i16)", "histc(f, 4)", "outer(v, vf)", "minimum(b, b)",
    "topk(i, 2)[0]", "bucketize(f, vf)",
)  # fmt: skip


def used(expression: str) -> list[str]:
    return [n for n in OPERANDS if re.search(rf"(?<![\w.']){n}(?![\w'(=])", expression)]


def text_of(expression: str) -> str:
    lines = [f"{n}: {OPERANDS[n][0]}[{', '.join(map(str, OPERANDS[n][1]))}]" for n in used(expression)]
    return "\n".join([*lines, f"z = {expression}", "return z", ""])


def real(expression: str) -> Any:
    """The expression on CPU tensors, by Python: the expressions are this file's own."""
    names: dict[str, Any] = {n: getattr(torch.nn.functional, n, None) or getattr(torch, n)
                             for n in vocabulary.FUNCTIONAL | vocabulary.TORCH}  # fmt: skip
    names |= {"torch": torch, "aten": torch.ops.aten, **vocabulary.DTYPES}
    for name in used(expression):
        dtype, shape = OPERANDS[name]
        kind = vocabulary.DTYPES[dtype]
        made = torch.rand(shape) if kind.is_floating_point else torch.randint(0, 2, shape)
        names[name] = made.to(kind)
    return eval(expression, names)  # noqa: S307 - the constants above


@pytest.mark.parametrize("expression", CPU)
def test_what_torch_refuses_is_refused(expression: str) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)):
        real(expression)
    with pytest.raises(RegionError) as caught:
        program(parse(text_of(expression)))
    assert caught.value.line == len(used(expression)) + 1
    assert caught.value.code in ("region-dtype", "region-shape", "region-type")


@pytest.mark.parametrize("expression", CUDA)
def test_what_only_cuda_refuses_is_refused(expression: str) -> None:
    real(expression) if expression != "e @ e.T" else None
    with pytest.raises(RegionError) as caught:
        program(parse(text_of(expression)))
    assert caught.value.code in ("region-dtype", "region-shape")


@pytest.mark.parametrize("expression", TAKEN)
def test_what_torch_takes_is_taken(expression: str) -> None:
    want = real(expression)
    got = program(parse(text_of(expression))).outputs[0]
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
