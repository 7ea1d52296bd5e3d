"""One region for every function of the language, and what torch calls it comes down to: forward, and trained."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator

from profiler.region.graph.lowering import Graph, lower
from profiler.region.language import vocabulary
from profiler.region.language.text import parse
from profiler.region.model import RegionError

INPUTS = """x: f32[64, 1024]
y: f32[64, 1024]
s: f32[64, 64]
v: f32[1024]
c: f32[4, 16, 32, 32]
t: f32[4, 16, 64]
d: f32[2, 8, 16, 16, 16]
i: i64[64, 1024].below(64)
k: i64[1024].below(64)
n: i64[64].below(64)
m: bool[64, 1024]
q: bf16[2, 4, 128, 64]
h: bf16[64, 64]
b: i8[64, 64]
o: i64[65].offsets(64)
z = torch.complex(x, y)
"""
"""Tensors of the usual kinds; z, which no input can be, is complex."""

FORMS = ("{f}(x)", "{f}(x, y)", "{f}(s, s)", "{f}(v, v)", "{f}(i)", "{f}(i, i)", "{f}(x, 1)", "{f}(c, 2)", "{f}(t, 2)",
         "{f}(d, 2)", "{f}(c, v[:16])", "{f}([x, y])", "{f}(3, 4)", "{f}(v, 4)", "{f}(8)", "{f}(x, y, y)",
         "{f}(x, x, 1)")  # fmt: skip
"""Tried in this order for what stands in no table below."""

CALLS: tuple[str, ...] = (
    "F.pad(c, (1, 1, 1, 1), 'reflect')",
    "F.fold(x[:, :576].reshape(1, 576, 64).contiguous(), (10, 10), 3)",
    "torch.arange(8)",
    "torch.complex(x, y)",
    "torch.polar(x, y)",
    "torch.empty(8)",
    "torch.ones(8)",
    "torch.zeros(8)",
    "torch.rand(8)",
    "torch.randn(8)",
    "torch.randperm(8)",
    "torch.tril_indices(8, 8)",
    "torch.triu_indices(8, 8)",
    "torch.cat([x, y])",
    "torch.concat([x, y])",
    "torch.stack([x, y])",
    "torch.hstack([x, y])",
    "torch.vstack([x, y])",
    "torch.dstack([x, y])",
    "torch.column_stack([x, y])",
    "aten.cat([x, y])",
    "aten.stack([x, y])",
    "torch.hsplit(d, 2)",
    "torch.vsplit(d, 2)",
    "torch.dsplit(d, 2)",
    "aten.max_pool2d_with_indices(c, [2, 2])",
    "F.normalize(x, dim=-1)",
    "F.softmax(x, -1)",
    "F.log_softmax(x, -1)",
    "F.softmin(x, -1)",
    "F.threshold(x, 0.1, 0.0)",
    "F.dropout(x, 0.1)",
    "F.alpha_dropout(x, 0.1, True)",
    "F.dropout1d(t, 0.1)",
    "F.dropout2d(c, 0.1)",
    "F.dropout3d(d, 0.1)",
    "F.layer_norm(x, [1024], v, v)",
    "F.rms_norm(x, [1024], v)",
    "F.group_norm(c, 4)",
    "F.batch_norm(c, None, None, None, None, True)",
    "F.instance_norm(c)",
    "F.local_response_norm(c, 2)",
    "F.linear(x, y, v[:64])",
    "F.bilinear(s, s, t.reshape(64, 64)[:4, :, None].expand(4, 64, 64))",
    "F.embedding(k, x)",
    "F.embedding_bag(i, x)",
    "F.one_hot(k, 64)",
    "F.unfold(c, 3)",
    "F.interpolate(c, scale_factor=2.0, mode='bilinear')",
    "F.upsample(c, scale_factor=2.0, mode='nearest')",
    "F.pixel_shuffle(c, 2)",
    "F.pixel_unshuffle(c, 2)",
    "F.channel_shuffle(c, 2)",
    "F.conv1d(t, t[:, :, :3])",
    "F.conv2d(c, c[:, :, :3, :3])",
    "F.conv3d(d, d[:, :, :3, :3, :3])",
    "F.conv_transpose1d(t, t[:1].expand(16, 16, 64)[:, :, :3])",
    "F.conv_transpose2d(c, c[:1].expand(16, 16, 32, 32)[:, :, :3, :3])",
    "F.conv_transpose3d(d, d[:1].expand(8, 8, 16, 16, 16)[:, :, :3, :3, :3])",
    "F.lp_pool1d(t, 2, 2)",
    "F.lp_pool2d(c, 2, 2)",
    "F.scaled_dot_product_attention(q, q, q)",
    "F.cross_entropy(x, n)",
    "F.nll_loss(x, n)",
    "F.kl_div(x, y, reduction='batchmean')",
    "F.binary_cross_entropy(sigmoid(x), sigmoid(y))",
    "F.cosine_embedding_loss(x, y, n)",
    "F.margin_ranking_loss(v, v, v)",
    "F.triplet_margin_loss(x, y, x)",
    "F.gaussian_nll_loss(x, y, y)",
    "F.linear_cross_entropy(x, y, n)",
    "F.prelu(x, v)",
    "F.gumbel_softmax(x)",
    "F.grid_sample(c, d.reshape(4, 64, 64, 4)[:, :, :, :2], align_corners=False)",
    "F.affine_grid(x[:2, :6].reshape(2, 2, 3), [2, 3, 8, 8], False)",
    "F.adaptive_max_pool1d(t, 4)",
    "F.grouped_mm(h[None].expand(4, 64, 64).clone(), h[None].expand(4, 64, 64).clone())",
    "F.multilabel_soft_margin_loss(x, y)",
    "torch.softmax(x, -1)",
    "torch.log_softmax(x, -1)",
    "torch.logsumexp(x, -1)",
    "torch.clamp(x, -1.0, 1.0)",
    "torch.clip(x, -1.0, 1.0)",
    "torch.lerp(x, y, 0.5)",
    "torch.addcmul(x, x, y)",
    "torch.addcdiv(x, x, y)",
    "torch.where(m, x, y)",
    "torch.masked_fill(x, m, 0.0)",
    "torch.bitwise_and(i, i)",
    "torch.norm(x, dim=-1)",
    "torch.median(x, -1)",
    "torch.kthvalue(x, 3, -1)",
    "torch.topk(x, 8, -1)",
    "torch.cumsum(x, -1)",
    "torch.cumprod(x, -1)",
    "torch.cummax(x, -1)",
    "torch.cummin(x, -1)",
    "torch.logcumsumexp(x, -1)",
    "torch.searchsorted(v, x)",
    "torch.bucketize(x, v)",
    "torch.multinomial(sigmoid(x), 4)",
    "torch.bmm(q[0], q[0].mT)",
    "torch.matmul(s, s)",
    "torch.addmm(s, s, s)",
    "torch.baddbmm(s[None], s[None], s[None])",
    "torch.addbmm(s, s[None], s[None])",
    "torch.addmv(s[0], s, s[0])",
    "torch.mv(x, v)",
    "torch.einsum('ik,jk->ij', x, y)",
    "torch.tensordot(s, s, 1)",
    "torch.chunk(x, 2, -1)",
    "torch.split(x, 512, -1)",
    "torch.tensor_split(x, 2, -1)",
    "torch.reshape(x, (-1,))",
    "torch.unflatten(x, 1, (32, 32))",
    "torch.permute(x, (1, 0))",
    "torch.transpose(x, 0, 1)",
    "torch.movedim(x, 0, 1)",
    "torch.moveaxis(x, 0, 1)",
    "torch.swapaxes(x, 0, 1)",
    "torch.swapdims(x, 0, 1)",
    "torch.narrow(x, 0, 0, 8)",
    "torch.select(x, 0, 0)",
    "torch.index_select(x, 0, k)",
    "torch.gather(x, 1, i)",
    "torch.take_along_dim(x, i, 1)",
    "torch.take(x, k)",
    "torch.roll(x, 1, 0)",
    "torch.flip(x, (0,))",
    "torch.tile(x, (2, 1))",
    "torch.repeat_interleave(x, n, 0, output_size=4096)",
    "torch.broadcast_to(v, (64, 1024))",
    "torch.meshgrid(v, v)",
    "torch.squeeze(x)",
    "torch.unsqueeze(x, 0)",
    "torch.expand_copy(v, (64, 1024))",
    "torch.scatter(x, 1, i, y)",
    "torch.scatter_add(x, 1, i, y)",
    "torch.scatter_reduce(x, 1, i, y, 'amax')",
    "torch.index_add(x, 0, n, y)",
    "torch.index_copy(x, 0, n, y)",
    "torch.index_fill(x, 0, n, 0.0)",
    "torch.index_put(x, (n,), y)",
    "torch.index_reduce(x, 0, n, y, 'amax')",
    "torch.masked_scatter(x, m, y)",
    "torch.segment_reduce(s, 'sum', offsets=o)",
    "torch.full((3, 4), 1.0)",
    "torch.linspace(0, 1, 8)",
    "torch.logspace(0, 1, 8)",
    "torch.full_like(x, 1.0)",
    "torch.randint(0, 8, (64,))",
    "torch.randint_like(x, 8)",
    "torch.normal(0.0, 1.0, (64,))",
    "torch.bernoulli(sigmoid(x))",
    "torch.native_layer_norm(x, [1024], v, v, 1e-5)",
    "torch.native_dropout(x, 0.1, True)",
    "torch.native_group_norm(c, None, None, 4, 16, 1024, 4, 1e-5)",
    "torch._int_mm(b, b)",
    "torch._scaled_mm(h.to(f8e4m3), h.to(f8e4m3).t(), v[0], v[0], out_dtype=bf16)",
    "torch.rms_norm(x, [1024], v)",
    "torch.layer_norm(x, [1024], v, v)",
    "torch.group_norm(c, 4)",
    "torch.conv1d(t, t[:, :, :3])",
    "torch.conv2d(c, c[:, :, :3, :3])",
    "torch.conv3d(d, d[:, :, :3, :3, :3])",
    "torch.conv_transpose1d(t, t[:1].expand(16, 16, 64)[:, :, :3])",
    "torch.conv_transpose2d(c, c[:1].expand(16, 16, 32, 32)[:, :, :3, :3])",
    "torch.conv_transpose3d(d, d[:1].expand(8, 8, 16, 16, 16)[:, :, :3, :3, :3])",
    "torch.dropout(x, 0.1, True)",
    "torch.embedding(x, k)",
    "torch.cross(x[:, :3], y[:, :3], dim=1)",
    "torch.inner(x, y)",
    "torch.addr(s, s[0], s[0])",
    "torch.ldexp(x, i)",
    "torch.quantile(x, 0.5, -1)",
    "torch.nanmedian(x, -1)",
    "torch.mode(x, -1)",
    "torch.renorm(x, 2, 0, 1.0)",
    "torch.select_scatter(x, v, 0, 0)",
    "torch.slice_scatter(x, x[:8], 0, 0, 8)",
    "torch.diagonal_scatter(s, s[0])",
    "torch.unfold_copy(x, 1, 4, 2)",
    "torch.select_copy(x, 0, 0)",
    "torch.prelu(x, v)",
    "torch.real(z)",
    "torch.imag(z)",
    "torch.view_as_real(z)",
    "torch.view_as_complex(x.reshape(64, 512, 2))",
    "torch.conj(z) * z",
    "torch.chain_matmul(s, s, s)",
    "torch.cartesian_prod(v, v)",
    "torch.broadcast_tensors(x, v)",
    "torch.instance_norm(c, None, None, None, None, True, 0.1, 1e-5, False)",
    "torch.pixel_shuffle(c, 2)",
    "torch.pixel_unshuffle(c, 2)",
    "torch.polygamma(1, x)",
    "torch.unsafe_chunk(x, 2)",
    "torch.unsafe_split(x, 32)",
    "torch.clone(x)",
    "torch.histc(v, 16)",
    "torch.bincount(k, minlength=64)",
    "torch.eye(8)",
    "torch.sort(x, -1)",
    "torch.trapezoid(x)",
    "torch.linalg.cross(x[:, :3], y[:, :3])",
    "torch.linalg.matmul(s, s)",
    "aten.gelu_backward(x, y)",
    "aten.threshold_backward(x, y, 0.0)",
    "aten.hardtanh_backward(x, y, -1.0, 1.0)",
    "aten.leaky_relu_backward(x, y, 0.01, False)",
    "aten.elu_backward(x, 1.0, 1.0, 1.0, False, y)",
    "aten.softplus_backward(x, y, 1.0, 20.0)",
    "aten._softmax(x, -1, False)",
    "aten._log_softmax(x, -1, False)",
    "aten._softmax_backward_data(x, y, -1, f32)",
    "aten._log_softmax_backward_data(x, y, -1, f32)",
    "aten.native_layer_norm(x, [1024], v, v, 1e-5)",
    "aten.native_layer_norm_backward(x, y, [1024], x[:, :1], x[:, :1], v, v, [True, True, True])",
    "aten.native_group_norm(c, None, None, 4, 16, 1024, 4, 1e-5)",
    "aten.native_group_norm_backward(c, c, x[:4, :4], x[:4, :4], v[:16], 4, 16, 1024, 4, [True, True, True])",
    "aten.native_batch_norm(c, None, None, None, None, True, 0.1, 1e-5)",
    "aten.native_batch_norm_backward(c, c, v[:16], None, None, v[:16], v[:16], True, 1e-5, [True, True, True])",
    "aten.native_dropout(x, 0.1, True)",
    "aten.native_dropout_backward(x, m, 1.1)",
    "aten.cudnn_batch_norm(c, v[:16], v[:16], None, None, True, 0.1, 1e-5)[0]",
    "aten.cudnn_batch_norm_backward(c, c, v[:16], None, None, v[:16], v[:16], 1e-5, zeros(0, dtype=torch.uint8))[0]",
    "aten.miopen_batch_norm(c, v[:16], v[:16], None, None, True, 0.1, 1e-5)[0]",
    "aten.miopen_batch_norm_backward(c, c, v[:16], None, None, v[:16], v[:16], 1e-5)[0]",
    "aten.nll_loss_forward(x, n, None, 1, -100)",
    "aten.nll_loss_backward(v[0], x, n, None, 1, -100, v[0])",
    "aten.nll_loss2d_forward(c, i[:4].reshape(4, 32, 32), None, 1, -100)",
    "aten.nll_loss2d_backward(v[0], c, i[:4].reshape(4, 32, 32), None, 1, -100, v[0])",
    "aten.embedding_dense_backward(x, n, 64, -1, False)",
    "aten.convolution(c, c[:, :, :3, :3], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)",
    "aten.convolution_backward(c[:, :4, :30, :30], c, c[:, :, :3, :3], [4], [1, 1], [0, 0], [1, 1], "
    "False, [0, 0], 1, [True, True, False])",
    "aten.max_pool2d_with_indices_backward(c[:, :, :16, :16], c, [2, 2], [2, 2], [0, 0], [1, 1], False, "
    "i[:16].reshape(4, 16, 16, 16))",
    "aten.avg_pool2d_backward(c[:, :, :16, :16], c, [2, 2], [2, 2], [0, 0], False, True, None)",
    "aten._adaptive_avg_pool2d(c, [4, 4])",
    "aten._adaptive_avg_pool2d_backward(c[:, :, :4, :4], c)",
    "aten.mse_loss_backward(x, x, y, 0)",
    "aten.smooth_l1_loss_backward(x, x, y, 0, 1.0)",
    "aten._fused_rms_norm(x, [1024], v, 1e-5)",
    "aten._fused_rms_norm_backward(x, y, [1024], x[:, :1], v, [True, True])",
    "aten._scaled_dot_product_flash_attention_backward(q, q, q, q, q, x[0].reshape(2, 4, 128), None, None, 128, 128, "
    "0.0, True, n[0], n[0])[0]",
    "aten._scaled_dot_product_cudnn_attention_backward(q, q, q, q, q, x[0].reshape(2, 4, 128, 1), n[0], n[0], None, "
    "None, None, 128, 128, 0.0, True)[0]",
    "aten._scaled_dot_product_efficient_attention_backward(q, q, q, q, None, q, x[0].reshape(2, 4, 128), n[0], n[0], "
    "0.0, [True, True, True, False], True)[0]",
    "aten._to_copy(x, dtype=bf16)",
    "aten._unsafe_view(x, [1024, 64])",
    "aten.view(x, [1024, 64])",
    "aten.expand(v, [64, 1024])",
    "aten.slice(x, 0, 0, 8)",
    "aten.select_backward(v, [64, 1024], 0, 0)",
    "aten.slice_backward(x, [128, 1024], 0, 0, 64, 1)",
    "aten.addmm(s, s, s)",
    "aten.bmm(q[0], q[0].mT)",
    "aten.where(m, x, y)",
    "aten.masked_fill(x, m, 0.0)",
    "aten._addmm_activation(s[0], s, s)",
    "aten._grouped_mm(h[None].expand(4, 64, 64).clone(), h[None].expand(4, 64, 64).clone().mT)",
    "aten.index(x, [n])",
    "aten.index_put(x, [n], y)",
    "aten.scatter_add(x, 1, i, y)",
    "aten.gather(x, 1, i)",
    "aten._unsafe_index(x, [n])",
    "aten._unsafe_index_put(x, [n], y)",
    "aten.constant_pad_nd(x, [1, 1])",
    "aten.upsample_nearest2d(c, [64, 64])",
    "aten.upsample_bilinear2d(c, [64, 64], False)",
    "aten.upsample_nearest1d(t, [128])",
    "aten.upsample_bicubic2d(c, [64, 64], False)",
    "aten.new_zeros(x, [8])",
    "aten.new_full(x, [8], 1.0)",
    "aten._safe_softmax(x, -1)",
    "aten._weight_norm_interface(x, x[:, :1])",
    "aten.lerp(x, y, 0.5)",
    "aten.select(x, 0, 0)",
    "aten.unsqueeze(x, 0)",
    "aten.transpose(x, 0, 1)",
    "aten.permute(x, [1, 0])",
    "aten.amax(x, [-1])",
    "aten.topk(x, 8)",
    "aten.cumsum(x, -1)",
    "aten.fill(x, 1.0)",
    "aten.var_mean(x)",
)
"""Calls of functions that take none of FORMS."""
ELSE: dict[str, str] = {
    "F.scaled_mm": "torch._scaled_mm(h.to(f8e4m3), h.to(f8e4m3).t(), v[0], v[0], out_dtype=bf16)",
}
"""Function -> a call of what it comes down to."""
CALL_OF = {call.partition("(")[0]: call for call in CALLS} | ELSE

ENDS = ("r", "r[0]", "torch.view_as_real(r)")
"""What is returned of a call: it, the first of several results, a complex one as pairs of real numbers."""


def texts(call: str) -> Iterator[str]:
    """Regions of one call of the function, likelier ones first."""
    forms = (CALL_OF[call],) if call in CALL_OF else tuple(form.format(f=call) for form in FORMS)
    return (region(form, end) for form in forms for end in ENDS)


def region(statement: str, end: str = "r") -> str:
    """One statement on those of INPUTS that it reads."""
    read = {"x", *re.findall(r"(?<![\w.])[a-z]\b", statement)}
    read |= {"y"} if "z" in read else set()
    return (
        "".join(line for line in INPUTS.splitlines(keepends=True) if line[0] in read)
        + f"r = {statement}\nreturn {end}\n"
    )


@functools.cache
def lowered() -> dict[str, tuple[str, Graph]]:
    """Function -> a region that calls it, and its graph. Those that no form fits are missing."""
    found = {}
    for module, names in vocabulary.functions().items():
        for name in names:
            for text in texts(f"{module}.{name}"):
                with contextlib.suppress(RegionError):
                    found[f"{module}.{name}"] = text, lower(parse(text))
                    break
    return found
