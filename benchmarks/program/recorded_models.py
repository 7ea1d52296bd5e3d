"""Ten models of transformers and torchvision with random weights, by functions as `tritonworthy advise` takes them.

FILE:FUNCTION returns (module, args, kwargs). Where torch makes tensors by default decides where the model is.

    tritonworthy advise benchmarks/program/recorded_models.py:llama_prefill_bf16 --device H100

Sizes are such that the GPU, and not the host, sets the pace of most of them on an H100.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch

Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]
TINY = "TRITONWORTHY_TINY"
"""Set in the environment: sizes that a CPU runs in a moment, to try the program out."""


@dataclass(frozen=True, slots=True)
class Model:
    """name: its function's, too."""

    name: str
    training: bool
    library: str


MODELS = (
    Model("llama_prefill_bf16", False, "transformers"),
    Model("llama_training_bf16", True, "transformers"),
    Model("gpt2_training_f16", True, "transformers"),
    Model("bert_training_f32", True, "transformers"),
    Model("t5_training_bf16", True, "transformers"),
    Model("vit_inference_f16", False, "transformers"),
    Model("whisper_inference_bf16", False, "transformers"),
    Model("qwen3_moe_prefill_bf16", False, "transformers"),
    Model("resnet50_training_f32", True, "torchvision"),
    Model("swin_training_bf16", True, "torchvision"),
)


UNREAD = 5


def is_unread(name: str) -> bool:
    """Whether the comparison of the model was kept until the recorder was done: of those whose names' SHA-256 is
    least."""
    return name in sorted((m.name for m in MODELS), key=lambda n: sha256(n.encode()).hexdigest())[:UNREAD]


HOST_TIMES_FROM = frozenset({"qwen3_moe_prefill_bf16", "swin_training_bf16"})


def gave_host_times(name: str) -> bool:
    """Whether the host's times of app.program.layout are from the model's recording: its step proves less."""
    return name in HOST_TIMES_FROM


def maker(name: str) -> Callable[[], Made]:
    """The function of that name."""
    made: Callable[[], Made] = globals()[name]
    return made


def llama_prefill_bf16() -> Made:
    """8 layers of 2048, 4 x 1536 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_llama(2048, 5632, layers=8), num_attention_heads=16, num_key_value_heads=4)
    model = _made(LlamaForCausalLM, config, torch.bfloat16)
    return model, (), {"input_ids": _tokens(4, 1536), "use_cache": False}


def llama_training_bf16() -> Made:
    """6 layers of 2048, 6 x 1024 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_llama(2048, 5632, layers=6), num_attention_heads=16, num_key_value_heads=8)
    tokens = _tokens(6, 1024)
    model = _made(LlamaForCausalLM, config, torch.bfloat16)
    return model, (), {"input_ids": tokens, "labels": tokens, "use_cache": False}


def gpt2_training_f16() -> Made:
    """The small one, 8 x 768 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**({"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000} if _is_tiny() else {}))
    tokens = _tokens(8, 768)
    return (
        _made(GPT2LMHeadModel, config, torch.float16),
        (),
        {"input_ids": tokens, "labels": tokens, "use_cache": False},
    )


def bert_training_f32() -> Made:
    """The base size, 8 x 256 tokens, TF32 off."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(**_bert())
    tokens = _tokens(8, 256)
    model = _made(BertForMaskedLM, config, torch.float32)
    return model, (), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}


def t5_training_bf16() -> Made:
    """6 and 6 layers of 1024, 8 x 512 tokens."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = (
        {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 1000}
        if _is_tiny()
        else {"d_model": 1024, "d_ff": 4096, "d_kv": 64, "num_layers": 6, "num_heads": 16}
    )
    tokens = _tokens(8, 512)
    config = T5Config(**sizes, decoder_start_token_id=0)
    return _made(T5ForConditionalGeneration, config, torch.bfloat16), (), {"input_ids": tokens, "labels": tokens}


def vit_inference_f16() -> Made:
    """The base size, 64 images."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(**(_bert() if _is_tiny() else {}), num_labels=1000)
    model = _made(ViTForImageClassification, config, torch.float16)
    return model, (), {"pixel_values": _images(64, torch.float16)}


def whisper_inference_bf16() -> Made:
    """8 and 8 layers of 768, 12 x 30 s of sound."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    width, layers, heads = (64, 2, 4) if _is_tiny() else (768, 8, 12)
    config = WhisperConfig(
        d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, use_cache=False,
    )  # fmt: skip
    batch = 1 if _is_tiny() else 12
    sound = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions, dtype=torch.bfloat16)
    model = _made(WhisperForConditionalGeneration, config, torch.bfloat16)
    return model, (), {"input_features": sound, "decoder_input_ids": _tokens(12, 128)}


def qwen3_moe_prefill_bf16() -> Made:
    """4 layers of 2048 with 32 experts, 4 x 2048 tokens."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    experts = (
        {"head_dim": 16, "num_experts": 4, "moe_intermediate_size": 64}
        if _is_tiny()
        else {"head_dim": 128, "num_experts": 32, "moe_intermediate_size": 768}
    )
    config = Qwen3MoeConfig(
        **_llama(2048, 2048, layers=4), **experts, num_attention_heads=16, num_key_value_heads=4, num_experts_per_tok=4
    )
    model = _made(Qwen3MoeForCausalLM, config, torch.bfloat16)
    return model, (), {"input_ids": _tokens(4, 2048), "use_cache": False}


def resnet50_training_f32() -> Made:
    """64 images."""
    from torchvision.models import resnet18, resnet50

    return (resnet18 if _is_tiny() else resnet50)(), (_images(64, torch.float32),), {}


def swin_training_bf16() -> Made:
    """The tiny one, 64 images."""
    from torchvision.models import swin_t

    return swin_t().to(torch.bfloat16), (_images(64, torch.bfloat16),), {}


def _is_tiny() -> bool:
    return bool(os.environ.get(TINY))


def _llama(width: int, inner: int, layers: int) -> dict[str, int]:
    """Sizes that models like Llama share."""
    if _is_tiny():
        width, inner, layers = 256, 256, 2
    return {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "vocab_size": 1000 if _is_tiny() else 32_000,
    }  # fmt: skip


def _bert() -> dict[str, int]:
    """Of the base size, unless tiny."""
    if not _is_tiny():
        return {}
    return {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def _made(model: Any, config: Any, dtype: torch.dtype) -> torch.nn.Module:
    """The class's model, weights in the type from the start."""
    with _default(dtype):
        made: torch.nn.Module = model(config)
    return made.to(dtype)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _tokens(batch: int, sequence: int) -> torch.Tensor:
    batch, sequence = (2, 32) if _is_tiny() else (batch, sequence)
    return torch.randint(0, 1000, (batch, sequence))


def _images(batch: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(1 if _is_tiny() else batch, 3, 224, 224, dtype=dtype)
