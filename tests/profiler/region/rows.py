"""The regions that a performance engineer names in the traces recorded for this project, and in some others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A region that must be there. text: what its text must hold; None where the region has none, for `missing`."""

    trace: str
    title: str
    operations: str
    calls: float
    share: float  # of the step's kernel time, at least
    text: str | None = "return"
    missing: str = ""
    kind: str = ""
    shapes: int = 1


HAND = "handrolled_blocks_bf16_eager_stack"
RMS = "to pow mean add rsqrt mul to mul"
ATTENTION = "matmul div add softmax matmul"
NO_SHAPES = "record_shapes=True"
ROWS = (
    Row(
        HAND,
        "RMSNorm by hand",
        "to pow mean add rsqrt to mul mul",
        8,
        0.09,
        "x: bf16[4, 2048, 2048]\n",
        kind="rms_norm",
    ),
    Row(HAND, "attention by hand", ATTENTION, 4, 0.5, "bias: bf16[16, 2048, 2048]\n", kind="attention"),
    Row(
        HAND,
        "GEMM with GELU and mask tail",
        "matmul add gelu mul",
        4,
        0.15,
        "mask: bf16[4, 2048, 8192]\n",
        kind="gemm_tail",
    ),
    Row(HAND, "GEMM", "linear", 4, 0.05, "w: bf16[6144, 2048]\nb: bf16[6144]\ny = linear(x, w, b)", kind="gemm"),
    Row(HAND, "residual add", "add", 8, 0.01, "y = x + residual"),
    Row("handrolled_blocks_bf16_eager", "attention by hand", ATTENTION, 4, 0.5),
    Row("handrolled_blocks_noshapes", "RMSNorm by hand", "to pow mean add rsqrt to mul mul", 8, 0.09, None, NO_SHAPES),
    Row("handrolled_blocks_noshapes", "attention by hand", ATTENTION, 4, 0.5, None, NO_SHAPES),
    Row("handrolled_blocks_noshapes", "GEMM with GELU and mask tail", "matmul add gelu mul", 4, 0.15, None, NO_SHAPES),
    Row("handrolled_blocks_bf16_compiled", "GEMM", "addmm", 4, 0.1, "w: bf16[8192, 2048].strides(1, 8192)"),
    Row("llama_prefill_bf16_eager", "RMSNorm by hand", RMS, 17, 0.2, kind="rms_norm"),
    Row("llama_prefill_bf16_eager", "RoPE", "mul neg cat mul add", 16, 0.1, "N: sizes[32, 8]", kind="rope", shapes=2),
    Row("llama_prefill_bf16_eager", "SwiGLU", "silu mul", 8, 0.04, "gate: bf16[4, 2048, 5632]", kind="swiglu"),
    Row("llama_prefill_bf16_eager", "residual add", "add", 16, 0.01),
    Row(
        "llama_prefill_bf16_eager",
        "SDPA attention",
        "scaled_dot_product_attention",
        8,
        0.05,
        "is_causal=True",
        kind="attention",
    ),
    Row("llama_prefill_bf16_eager_stack", "RMSNorm by hand", RMS, 17, 0.2),
    Row(
        "llama_prefill_bf16_compiled", "SDPA attention", "_scaled_dot_product_cudnn_attention", 8, 0.2, "attn_mask=mask"
    ),
    Row("llama_eager_attention_prefill", "attention by hand", "matmul mul add softmax to matmul", 4, 0.5, "dtype=f32"),
    Row(
        "llama_eager_attention_prefill",
        "layout copy (repeated heads)",
        "reshape",
        8,
        0.01,
        "expand(2, 8, 4, 1024, 64)|.strides(",
    ),
    Row("llama_decode_bf16_eager", "RMSNorm by hand", RMS, 136, 0.2, "N: sizes[1, 128]", shapes=2),
    Row("llama_train_bf16_eager", "RMSNorm by hand", RMS, 17, 0.2, "w: bf16[2048].requires_grad"),
    Row("llama_train_bf16_eager", "SwiGLU", "silu mul", 8, 0.03, "up: bf16[2, 2048, 5632].requires_grad"),
    Row(
        "gpt2_train_autocast_eager",
        "GELU (tanh) by hand",
        "mul to pow mul add mul tanh add mul",
        6,
        0.18,
        kind="gelu_tanh",
    ),
    Row(
        "gpt2_train_autocast_eager", "cross entropy", "to cross_entropy_loss", 1, 0.12, "target: i64[8192].below(50257)"
    ),
    Row(
        "gpt2_train_autocast_eager",
        "optimizer step (fused)",
        "_foreach_add_ _fused_adamw_",
        1,
        0.01,
        "p: f32[81912576]",
    ),
    Row("gpt2_train_autocast_eager", "autocast cast", "to", 1, 0.005, ".to(bf16)", shapes=0),
    Row("gpt2_train_autocast_eager_stack", "GELU (tanh) by hand", "mul to pow mul add mul tanh add mul", 6, 0.18),
    Row(
        "bert_train_varlen_fp16_eager",
        "dropout, residual add, LayerNorm",
        "dropout add layer_norm",
        12,
        0.08,
        "N: sizes[463, 457, 402, 317, 316, 101]",
        shapes=6,
    ),
    Row(
        "bert_train_varlen_fp16_eager", "SDPA attention", "scaled_dot_product_attention", 6, 0.05, "N: sizes[", shapes=6
    ),
    Row("mixtral_prefill_bf16_eager", "grouped GEMM", "_grouped_mm", 4, 0.1, "offs: i32[8].offsets(8192)"),
    Row("mixtral_prefill_bf16_eager", "SwiGLU", "silu mul", 4, 0.1, "gate: bf16[8192, 3584].strides(7168, 1)"),
    Row(
        "mixtral_prefill_bf16_eager",
        "routing",
        "to softmax topk sum div_ sort floor_divide index index to histc cumsum ge clamp_ masked_fill_",
        4,
        0.08,
        "topk(",
        kind="routing",
    ),
    Row(
        "mixtral_prefill_bf16_eager",
        "expert combine",
        "masked_fill mul arange index_put_ index sum to",
        4,
        0.07,
        "index_copy",
    ),
    Row(
        "t5_train_autocast_eager",
        "attention by hand",
        "to to to mul mul matmul add_ _safe_softmax dropout to matmul to",
        4,
        0.25,
        "bias: bf16[1, 8, 512, 512]",
    ),
    Row(
        "t5_train_autocast_eager", "RMSNorm by hand", "pow mean add rsqrt mul mul", 22, 0.1, "sizes[512, 128]", shapes=2
    ),
    Row("large_t5_train_autocast_2steps", "RMSNorm by hand", "pow mean add rsqrt mul mul", 32, 0.1, shapes=2),
    Row(
        "timm_convnext_train_channels_last",
        "depthwise convolution",
        "conv2d",
        9,
        0.05,
        "groups=384",
        kind="convolution",
    ),
    Row("timm_convnext_train_channels_last", "LayerNorm", "layer_norm", 20, 0.1, "eps=1e-06", shapes=5),
    Row("timm_convnext_train_channels_last", "GEMM with GELU tail", "linear gelu", 9, 0.05),
    Row("timm_convnext_train_channels_last", "layer scale, residual add", "mul add", 12, 0.05, shapes=4),
    Row(
        "timm_resnet50_train_fp32",
        "convolution, batch norm, residual add, ReLU",
        "conv2d batch_norm add_ relu_",
        13,
        0.25,
        ".channels_last",
        shapes=4,
    ),
    Row(
        "timm_resnet50_train_fp32",
        "convolution, batch norm, ReLU",
        "conv2d batch_norm relu_",
        13,
        0.15,
        "padding=[1, 1]",
        shapes=4,
    ),
    Row("timm_vit_base_bf16_eager", "residual add, LayerNorm", "add layer_norm", 24, 0.1),
    Row("timm_vit_base_bf16_eager", "SDPA attention", "scaled_dot_product_attention", 12, 0.05),
    Row(
        "pyg_gcn_gat_train_fp32",
        "gather, multiply and scatter-add",
        "index_select mul new_zeros scatter_add_",
        1,
        0.3,
        "index: i64[4199977].below(200000)",
        kind="scatter",
    ),
    Row(
        "pyg_gcn_gat_train_fp32",
        "segment softmax by hand",
        "index_select index_select add leaky_relu new_zeros scatter_reduce_ index_select sub exp new_zeros "
        "scatter_add_ add index_select div",
        1,
        0.15,
        "e = exp(z - ",
        kind="scatter",
    ),
    Row(
        "tl_h100_owlv2", "attention by hand", "bmm softmax bmm", 120, 0.8, "q: f32[16, 5185, 64]|q: bf16[16, 5185, 64]"
    ),
    Row("tl_h100_owlv2", "QuickGELU by hand", "mul sigmoid mul", 180, 0.02, "* 1.702", shapes=2),
    Row(
        "tl_sglang_prefilldecode",
        "custom operation aiter::rmsnorm",
        "aiter::rmsnorm",
        73,
        0.01,
        None,
        "custom operation",
    ),
)
