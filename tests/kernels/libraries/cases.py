"""One case a row of the catalogue: a region that is covered, and the same with one thing changed that is not."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.host import Host
from tests.kernels.libraries import texts as t
from tests.kernels.libraries.hosts import A100, B200, CPU, H200, L4, P100

COMPILE = "compile"


@dataclass(frozen=True, slots=True)
class Case:
    """covered, changed: regions; host, other_host: where each is asked. candidate: whose verdict, "" for nothing to
    call. flips: dtype, size, arch, direction, layout or form. needs: words of the condition that fails in `changed`;
    "" where it is no such operation any more.
    """

    row: int
    candidate: str
    flips: str
    covered: str
    changed: str
    needs: str = ""
    host: Host = H200
    other_host: Host = H200


def arch(row: int, candidate: str, text: str, other: Host, needs: str) -> Case:
    """The same region on an older GPU."""
    return Case(row, candidate, "arch", text, text, needs, other_host=other)


LIB, F_, FI = "library:", "library:torch.nn.functional.", "library:flashinfer."
OLD = "compute capability 7.0"

G = ".requires_grad"
FURTHER: tuple[Case, ...] = (
    Case(4, LIB + "quack.gemm_act", "form", t.LINEAR_RELU.format(d="bf16"), t.LINEAR_GELU, "tanh-GELU"),
    Case(4, LIB + "quack.gemm_act", "direction", t.LINEAR_RELU.format(d="bf16"),
         t.LINEAR_RELU.format(d="bf16").replace("bf16[64, 128]", "bf16[64, 128].requires_grad"), "forward only"),
    Case(8, FI + "mm_fp8", "arch", t.FP8_BLOCKS, t.FP8_BLOCKS, "10.0 or 12.0", B200, H200),
    Case(8, F_ + "scaled_mm.mx", "arch", t.NVFP4, t.NVFP4, "10.0 or newer", B200, H200),
    Case(8, FI + "mm_fp4", "dtype", t.NVFP4, t.MXFP8, "f4e2m1x2", B200, B200),
    Case(8, FI + "mm_mxfp8", "arch", t.MXFP8, t.MXFP8, "10.0 or", B200, H200),
    Case(8, LIB + "torchao.mx_fp8_bf16", "dtype", t.MXFP8, t.NVFP4, "f8e4m3", B200, B200),
    Case(9, LIB + "torch._int_mm", "size", t.INT8.format(m=32), t.INT8.format(m=8), "more than 16 rows"),
    arch(11, LIB + "gemlite.A16W4", t.INT4.format(m=16, d="f16"), P100, "7.5"),
    Case(11, LIB + "torchao.int4_weight_only", "dtype", t.INT4.format(m=16, d="bf16"), t.INT4.format(m=16, d="f16"),
    "bf16"),
    Case(11, LIB + "torch._weight_int4pack_mm", "size", t.INT4.format(m=16, d="bf16"), t.INT4.format(m=256, d="bf16"),
         "up to 64 rows"),
    Case(15, LIB + "liger_kernel.fused_moe", "direction", t.MOE.format(g=G, e=16), t.MOE.format(g="", e=16),
    "training"),
    arch(17, F_ + "scaled_dot_product_attention.cudnn", t.ATTENTION.format(d="bf16", h=256), A100, "up to 128"),
    arch(17, LIB + "flash_attn.flash_attn_func", t.ATTENTION.format(d="bf16", h=64), P100, "8.0"),
    arch(18, LIB + "flash_attn_interface.flash_attn_func", t.ATTENTION.format(d="bf16", h=64), B200, "9.0"),
    arch(26, LIB + "quack.rmsnorm", t.RMS.format(w="bf16"), A100, "9.0"),
    Case(26, FI + "rmsnorm", "form", t.RMS.format(w="bf16"), t.RMS.format(w="bf16").replace(" * w", ""),
    "with a weight"),
    Case(32, LIB + "flag_gems.softmax", "dtype", t.SOFTMAX.format(m=32, dim=0),
         t.SOFTMAX.format(m=32, dim=0).replace("f32", "f64"), "dtype f32"),
    Case(34, LIB + "quack.cross_entropy", "size", t.LOSS.format(d="bf16"),
         t.LOSS.format(d="bf16").replace("1000", "1001"), "multiples of 8"),
    arch(35, LIB + "cut_cross_entropy.linear_cross_entropy", t.LINEAR_LOSS.format(more=""), P100, "8.0"),
    Case(40, LIB + "liger_kernel.geglu", "form", t.GEGLU.format(how="tanh"), t.GEGLU.format(how="none"), "tanh form"),
    Case(40, FI + "gelu_tanh_and_mul", "form", t.GEGLU.format(how="tanh"), t.GEGLU.format(how="none"), "tanh form"),
    Case(40, LIB + "flag_gems.gelu_and_mul", "dtype", t.GEGLU.format(how="none"),
         t.GEGLU.format(how="none").replace("bf16", "f64"), "dtype f32"),
    arch(46, LIB + "vllm.per_token_group_quant_fp8", t.BLOCK_QUANT.format(to="f8e4m3", most=448.0).replace(".float()",
    ""),
         A100, "8.9"),
    Case(31, LIB + "liger_kernel.softmax", "size", t.SOFTMAX.format(m=64, dim=1),
         t.SOFTMAX.format(m=64, dim=1).replace("1024", "131072"), "up to 65536 numbers"),
    Case(40, LIB + "liger_kernel.swiglu", "size", t.SWIGLU.format(g=G), t.SWIGLU.format(g=G).replace("128", "65537"),
         "up to 65536 numbers"),
    Case(40, LIB + "liger_kernel.geglu", "size", t.GEGLU.format(how="tanh"),
         t.GEGLU.format(how="tanh").replace("128", "65537"), "up to 65536 numbers"),
    Case(41, LIB + "liger_kernel.rope", "form", t.TWIN_ROPE, t.ROPE, "equal halves"),
    Case(55, LIB + "quack.topk", "size", t.TOPK.format(k=64), t.TOPK.format(k=64).replace("4096, 2048", "8, 512, 2048"),
         "two dimensions"),
)  # fmt: skip
"""More than one call for a row: cases of the others."""

CASES: tuple[Case, ...] = (
    Case(1, LIB + "torch.mm", "size", t.MM, t.BMM),
    Case(2, LIB + "torch.bmm", "size", t.BMM, t.MM),
    Case(3, LIB + "torch.ops.aten._addmm_activation", "dtype", t.LINEAR_RELU.format(d="bf16"),
         t.LINEAR_RELU.format(d="f64"), "dtype f32 or bf16 or f16"),
    arch(4, COMPILE, t.TAIL, L4, "68 SMs"),
    Case(5, "", "form", t.ROW_LSE, t.LINEAR_RELU.format(d="bf16")),
    Case(6, "", "size", t.MLP.format(h=64), t.MLP.format(h=512)),
    Case(7, F_ + "scaled_mm", "size", t.FP8.format(k=256), t.FP8.format(k=264), "multiples of 16"),
    arch(7, F_ + "scaled_mm", t.FP8.format(k=256), A100, "8.9"),
    arch(8, F_ + "scaled_mm.blockwise", t.FP8_BLOCKS, L4, "capability 9.0"),
    Case(9, LIB + "torch._int_mm", "size", t.INT8.format(m=32), t.INT8.format(m=16), "more than 16 rows"),
    Case(10, COMPILE, "size", t.INT8_WEIGHT.format(m=1), t.INT8_WEIGHT.format(m=128), "up to 64 rows"),
    Case(11, LIB + "vllm.marlin_gemm", "size", t.INT4.format(m=16, d="f16"), t.INT4.format(m=2048, d="f16"),
    "up to 64 rows"),
    arch(14, F_ + "grouped_mm", t.EXPERTS.format(d="bf16"), A100, "9.0 or newer"),
    Case(14, F_ + "grouped_mm", "dtype", t.EXPERTS.format(d="bf16"), t.EXPERTS.format(d="f32"), "dtype bf16"),
    Case(15, LIB + "vllm.fused_moe", "direction", t.MOE.format(g="", e=4), t.MOE.format(g=G, e=4), "forward only"),
    arch(16, COMPILE, t.LORA.format(r=16), P100, OLD),
    Case(17, F_ + "scaled_dot_product_attention", "size", t.ATTENTION.format(d="bf16", h=64),
         t.ATTENTION.format(d="bf16", h=512), "head size up to 256"),
    Case(17, F_ + "scaled_dot_product_attention.flash", "dtype", t.ATTENTION.format(d="bf16", h=64),
         t.ATTENTION.format(d="f32", h=64), "dtype f16 or bf16"),
    arch(18, LIB + "flash_attn.cute.flash_attn_func", t.ATTENTION.format(d="bf16", h=64), A100, "9.0 or 10.0"),
    Case(19, LIB + "torch.nn.attention.flex_attention", "size", t.BIASED.format(g=G),
         t.BIASED.format(g=G).replace("32]", "8]"), "16 or more"),
    Case(20, LIB + "torch.nn.attention.varlen_attn", "dtype", t.PACKED.format(d="bf16"), t.PACKED.format(d="f32"),
         "dtype f16 or bf16"),
    Case(21, FI + "BatchDecodeWithPagedKVCacheWrapper", "dtype", t.PAGED.format(d="bf16"), t.PAGED.format(d="f32"),
         "dtype f16 or bf16"),
    arch(22, FI + "BatchMLAPagedAttentionWrapper", t.LATENT, A100, "9.0"),
    Case(23, LIB + "torch.nn.attention.flex_attention", "dtype", t.WINDOW.format(g=""),
         t.WINDOW.format(g="").replace("bf16", "f64"), "dtype f32"),
    Case(24, LIB + "fla.linear_attn", "size", t.LINEAR_ATTENTION.format(h=64), t.LINEAR_ATTENTION.format(h=48),
         "64, 128 or 256"),
    Case(25, LIB + "quack.layernorm", "dtype", t.LAYER.format(d="bf16", w="f32"), t.LAYER.format(d="bf16", w="bf16"),
         "weight of f32"),
    Case(26, F_ + "rms_norm", "dtype", t.RMS.format(w="bf16"), t.RMS.format(w="f32"), "weight in x's dtype"),
    arch(27, COMPILE, t.ADD_RMS.format(g=""), P100, OLD),
    Case(27, FI + "fused_add_rmsnorm", "direction", t.ADD_RMS.format(g=""), t.ADD_RMS.format(g=G), "forward only"),
    arch(28, COMPILE, t.NORM_QUANT, A100, "8.9"),
    Case(29, COMPILE, "size", t.GROUP.format(n=512), t.GROUP.format(n=2048), "4096 numbers"),
    Case(30, F_ + "batch_norm", "dtype", t.BATCH.format(d="f32"), t.BATCH.format(d="f64"), "for cuDNN"),
    Case(31, LIB + "quack.softmax", "arch", t.SOFTMAX.format(m=64, dim=1), t.SOFTMAX.format(m=64, dim=1), "9.0",
         other_host=A100),
    Case(32, COMPILE, "size", t.SOFTMAX.format(m=32, dim=0), t.SOFTMAX.format(m=4096, dim=0), "64 numbers"),
    Case(33, COMPILE, "size", t.MASKED.format(dim=-1), t.MASKED.format(dim=0), "last dimension"),
    Case(34, LIB + "quack.cross_entropy", "dtype", t.LOSS.format(d="bf16"), t.LOSS.format(d="f64"), "dtype f32"),
    Case(35, F_ + "linear_cross_entropy", "form", t.LINEAR_LOSS.format(more=""),
         t.LINEAR_LOSS.format(more=", reduction='none'"), "mean or sum"),
    Case(36, LIB + "liger_kernel.kl_div", "size", t.KL.format(s="64, 128"), t.KL.format(s="2, 64, 128"),
    "two dimensions"),
    arch(37, COMPILE, t.MSE, P100, OLD),
    arch(38, COMPILE, t.CHAIN, P100, OLD),
    Case(39, F_ + "gelu", "form", t.TANH_GELU.format(c=0.7978845608), t.TANH_GELU.format(c=0.75)),
    Case(39, F_ + "activation", "form", "x: bf16[64, 128]\nreturn gelu(x)\n", "x: bf16[64, 128]\nreturn gelu(x) * x\n",
         "alone"),
    Case(40, FI + "silu_and_mul", "direction", t.SWIGLU.format(g=""), t.SWIGLU.format(g=G), "forward only"),
    Case(41, LIB + "liger_kernel.rope", "form", t.TWIN_ROPE, t.INTERLEAVED, "halves of a head"),
    Case(42, FI + "fused_qk_rmsnorm_rope", "direction", t.NORM_ROPE.format(g=""), t.NORM_ROPE.format(g=G),
    "forward only"),
    Case(43, F_ + "dropout", "form", t.DROPOUT.format(more=""), t.DROPOUT.format(more=" * 2"), "alone"),
    Case(44, LIB + "flash_attn.layer_norm_fn", "size", t.DROP_NORM.format(n=4096), t.DROP_NORM.format(n=65536),
    "64 KiB"),
    arch(45, COMPILE, t.QUANT, A100, "8.9"),
    Case(46, LIB + "flag_gems.per_token_group_quant_fp8", "dtype", t.BLOCK_QUANT.format(to="f8e4m3", most=448.0),
         t.BLOCK_QUANT.format(to="f8e5m2", most=57344.0), "e4m3"),
    arch(48, COMPILE, t.EMBED, P100, OLD),
    Case(49, LIB + "fbgemm_gpu.tbe", "dtype", t.BAG.format(d="f32"), t.BAG.format(d="bf16"), "dtype f32 or f16"),
    Case(50, COMPILE, "dtype", t.EMBED_BACK.format(d="f32"), t.EMBED_BACK.format(d="bf16"), "dtype f32"),
    arch(51, LIB + "torch.index_add.cutedsl", t.SCATTER, A100, "9.0"),
    Case(52, "", "form", t.JAGGED, t.SCATTER),
    Case(52, "", "form", t.SEGMENT, t.SCATTER),
    arch(53, COMPILE, t.GATHER, P100, OLD),
    Case(54, LIB + "torch.sort", "size", t.SORT.format(n=2**31 - 1), t.SORT.format(n=2**31), "2147483647"),
    Case(55, LIB + "torch.topk.cutedsl", "size", t.TOPK.format(k=64), t.TOPK.format(k=8), "k of 16 or 32"),
    Case(56, LIB + "vllm.topk_softmax", "direction", t.ROUTER.format(g=""), t.ROUTER.format(g=G), "forward only"),
    Case(57, FI + "top_p_sampling_from_probs", "size", t.TOP_P.format(n=1), t.TOP_P.format(n=2), "one sample"),
    Case(58, COMPILE, "direction", t.CUMPROD.format(g=""), t.CUMPROD.format(g=G), "cumprod"),
    arch(59, LIB + "torch._higher_order_ops.associative_scan", t.RECURRENCE, CPU, "CUDA GPU"),
    Case(60, LIB + "mamba_ssm.selective_scan", "size", t.SSM.format(n=16), t.SSM.format(n=512), "256 numbers"),
    Case(61, LIB + "causal_conv1d.causal_conv1d_fn", "size", t.CAUSAL.format(w=4, p=3), t.CAUSAL.format(w=5, p=4),
         "2 to 4"),
    Case(62, LIB + "torch.histc", "dtype", t.HISTC.format(d="f32"), t.HISTC.format(d="bf16"), "not f16 or bf16"),
    Case(63, F_ + "conv2d", "size", t.CONV, t.DEPTHWISE_2D),
    Case(64, COMPILE, "size", t.DEPTHWISE_1D, t.DEPTHWISE_2D, "one dimension"),
    Case(65, COMPILE, "size", t.POOL.format(k=2), t.POOL.format(k=3), "25 numbers"),
    Case(66, LIB + "torch.fft", "form", t.FFT.format(name="rfft"), t.FFT.format(name="fftshift")),
    Case(68, LIB + "torch.optim.fused", "dtype", t.ADAM.format(d="f32"), t.ADAM.format(d="bf16"), "of one dtype"),
    Case(69, LIB + "torch._foreach", "dtype", t.FOREACH.format(d="f32"), t.FOREACH.format(d="i32"), "dtype"),
    Case(73, FI + "append_paged_kv_cache", "direction", t.CACHE.format(g=""), t.CACHE.format(g=G), "forward only"),
    Case(74, LIB + "vllm.moe_align_block_size", "direction", t.PERMUTE.format(g=""), t.PERMUTE.format(g=G),
    "forward only"),
    Case(75, COMPILE, "size", t.TINY.format(s="", n=1), t.TINY.format(s="N: sizes[1, 3]\n", n="N"), "stay the same"),
)  # fmt: skip

INEXPRESSIBLE: tuple[tuple[int, str, str], ...] = (
    (12, "x: f16[64, 64]\nw: f16[64, 64]\ns = torch.sparse.to_sparse_semi_structured(w)\nreturn F.linear(x, s)\n",
     "torch.sparse"),
    (13, "x: f32[64, 64]\nw: f32[64, 64]\nreturn torch.sparse.mm(w.to_sparse_csr(), x)\n", "sparse"),
    (47, "x: bf16[64, 64]\nreturn x.to(f4e2m1)\n", "f4e2m1"),
    (67, "x: f32[64, 64]\nu, s, v = torch.linalg.svd(x)\nreturn s\n", "svd"),
    (70, "x: f32[64, 64]\nreturn torch.distributed.all_reduce(x)\n", "torch.distributed"),
    (71, "x: f32[64, 64]\nw: f32[64]\ny = torch.distributed.all_reduce(x)\nreturn F.rms_norm(y, (64,), w)\n",
     "torch.distributed"),
    (72, "x: f32[64, 64]\nw: f32[64, 64]\nreturn torch.ops.symm_mem.fused_all_gather_matmul(x, [w], 0, 'g')\n",
     "symm_mem"),
)  # fmt: skip
"""Rows that no region can say: (row, what one would write, a word of the parser's answer)."""
