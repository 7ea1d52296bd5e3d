"""Traces of parts of real models with random weights, for the corpus of region programs. Runs alone on a machine with
a GPU; needs torch, and for its rows transformers, torchvision, torch_geometric and timm.

    python tools/corpus/record_models.py --out DIR --seconds 200

One child process records one row. All of them prepare in parallel; several build their model and run one warm step at
the same time; each profiled step has the GPU for itself. A row that fails is written to DIR/report.json with its error
and costs no other row. What was recorded is packed into DIR/traces_N.tar: NAME.json.gz, and NAME.et.json.gz, the
execution trace that tells which operand is which value.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import inspect
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # or asking for a GPU in the parent spoils its children
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

Call = Callable[[], Any]

SEED = 20261124
MODULE_PREFIX = "nn.Module: "
MAX_TAR_BYTES = 14_500_000
MAX_TARS = 4
DEPTH = 2


@dataclass(frozen=True)
class Row:
    """One model in one use.

    maker: a function of MAKERS. mode: infer (no_grad), decode (one token with a cache) or train (forward, loss,
    backward, optimizer step). size: tokens, pixels of a side, samples of sound, or nodes. spec: what the maker wants.
    """

    name: str
    maker: str
    mode: str
    dtype: str  # bf16, f16, f32, autocast
    batch: int
    size: int
    spec: Mapping[str, Any] = field(default_factory=dict)
    attention: str = ""  # eager, sdpa or "" for the model's own
    optimizer: str = "adamw"
    channels_last: bool = False


IDS = "input_ids=ids:b,s"
LM = f"{IDS} labels=ids:b,s"
PADDED = f"{IDS} attention_mask=mask:b,s"
PADDED_LM = f"{PADDED} labels=ids:b,s"
CLASSES = f"{PADDED} labels=below2:b"
SEQ2SEQ = "input_ids=ids:b,s attention_mask=mask:b,s decoder_input_ids=ids:b,s/4 labels=ids:b,s/4"
PIXELS = "pixel_values=float:b,3,s,s"
IMAGES = f"{PIXELS} labels=below1000:b"
VIDEO = "pixel_values=float:b,16,3,s,s"
SOUND = "input_values=float:b,s"
SERIES = "past_values=float:b,s,7"


def hf(
    name: str, model: str, mode: str, dtype: str, batch: int, size: int, inputs: str, attention: str = "eager",
    optimizer: str = "adamw", config: str = "", **options: Any,
) -> Row:  # fmt: skip
    """A row of transformers. config: its class, by default by the name of the model's. options: of the config."""
    spec = {"model": model, "config": config, "inputs": inputs, "options": options}
    return Row(name, "transformers", mode, dtype, batch, size, spec, attention, optimizer)


def tv(name: str, model: str, mode: str, dtype: str, batch: int, size: int, shape: str = "b,3,s,s", **kw: Any) -> Row:
    return Row(f"tv_{name}", "torchvision", mode, dtype, batch, size, {"model": model, "shape": shape}, **kw)


def tm(model: str, mode: str, dtype: str, batch: int, size: int = 224, **kw: Any) -> Row:
    return Row(f"timm_{model}", "timm", mode, dtype, batch, size, {"model": model}, **kw)


def graph(name: str, mode: str, dtype: str, nodes: int, degree: int, width: int, **kw: Any) -> Row:
    return Row(f"pyg_{name}", "graph", mode, dtype, degree, nodes, {"layer": name, "width": width, **kw})


def plain(name: str, mode: str, dtype: str, batch: int, size: int, optimizer: str = "adamw", **spec: Any) -> Row:
    return Row(name, spec.pop("maker", name), mode, dtype, batch, size, spec, optimizer=optimizer)


LLAMA8 = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
QWEN3_8 = {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
           "head_dim": 128, "vocab_size": 151936}  # fmt: skip

DECODERS = (
    hf("llama3_8b_prefill", "LlamaForCausalLM", "infer", "bf16", 1, 4096, IDS, "sdpa", vocab_size=128256, **LLAMA8),
    hf("llama3_8b_decode", "LlamaForCausalLM", "decode", "bf16", 32, 1024, IDS, "sdpa", vocab_size=128256, **LLAMA8),
    hf("llama32_1b_train", "LlamaForCausalLM", "train", "bf16", 2, 1024, LM, "eager", hidden_size=2048,
       intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8, head_dim=64, vocab_size=128256,
       tie_word_embeddings=True),
    hf("tinyllama_train", "LlamaForCausalLM", "train", "autocast", 4, 1024, LM, "sdpa", "adamw_fused", hidden_size=2048,
       intermediate_size=5632, num_attention_heads=32, num_key_value_heads=4, vocab_size=32000),
    hf("qwen2_7b_prefill", "Qwen2ForCausalLM", "infer", "f16", 4, 1024, PADDED, "sdpa", hidden_size=3584,
       intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, vocab_size=152064),
    hf("qwen25_05b_train", "Qwen2ForCausalLM", "train", "bf16", 4, 1024, LM, "sdpa", hidden_size=896,
       intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936,
       tie_word_embeddings=True),
    hf("qwen3_17b_train", "Qwen3ForCausalLM", "train", "bf16", 2, 1024, LM, "eager", hidden_size=2048,
       intermediate_size=6144, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936,
       tie_word_embeddings=True),
    hf("qwen3_8b_decode", "Qwen3ForCausalLM", "decode", "bf16", 64, 1024, IDS, "sdpa", **QWEN3_8),
    hf("mistral_7b_prefill", "MistralForCausalLM", "infer", "bf16", 1, 2048, IDS, "eager", vocab_size=32000,
       sliding_window=1024, **LLAMA8),
    hf("gemma2_2b_prefill", "Gemma2ForCausalLM", "infer", "bf16", 2, 2048, IDS, "eager", hidden_size=2304,
       intermediate_size=9216, num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=256000,
       sliding_window=1024),
    hf("gemma2_2b_train", "Gemma2ForCausalLM", "train", "bf16", 1, 1024, LM, "eager", hidden_size=2304,
       intermediate_size=9216, num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=256000),
    hf("gemma3_1b_train", "Gemma3ForCausalLM", "train", "bf16", 2, 1024, LM, "sdpa", config="Gemma3TextConfig",
       hidden_size=1152, intermediate_size=6912, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
       vocab_size=262144, sliding_window=512, layer_types=["sliding_attention", "full_attention"]),
    hf("phi3_mini_prefill", "Phi3ForCausalLM", "infer", "bf16", 2, 2048, IDS, "sdpa", hidden_size=3072,
       intermediate_size=8192, num_attention_heads=32, num_key_value_heads=32, vocab_size=32064, pad_token_id=32000),
    hf("phi2_train", "PhiForCausalLM", "train", "f16", 2, 1024, LM, "sdpa", "sgd", hidden_size=2560,
       intermediate_size=10240, num_attention_heads=32, partial_rotary_factor=0.4, vocab_size=51200),
    hf("gpt2_train", "GPT2LMHeadModel", "train", "f32", 8, 512, LM, "eager"),
    hf("gpt2_xl_prefill", "GPT2LMHeadModel", "infer", "f16", 4, 1024, IDS, "sdpa", n_embd=1600, n_head=25),
    hf("pythia_14b_train", "GPTNeoXForCausalLM", "train", "autocast", 4, 1024, LM, "eager", hidden_size=2048,
       intermediate_size=8192, num_attention_heads=16, vocab_size=50304),
    hf("gpt_neo_train", "GPTNeoForCausalLM", "train", "f32", 4, 512, LM, "eager", hidden_size=768, num_heads=12,
       num_layers=2, attention_types=[[["global", "local"], 1]]),
    hf("gptj_prefill", "GPTJForCausalLM", "infer", "f16", 2, 1024, IDS, "eager"),
    hf("falcon_7b_prefill", "FalconForCausalLM", "infer", "bf16", 2, 1024, IDS, "sdpa", hidden_size=4544,
       num_attention_heads=71, multi_query=True, vocab_size=65024),
    hf("falcon_rw_train", "FalconForCausalLM", "train", "bf16", 2, 1024, f"{LM} attention_mask=mask:b,s", "eager",
       hidden_size=2048, num_attention_heads=32, multi_query=False, parallel_attn=False, bias=True, alibi=True,
       vocab_size=50304),
    hf("bloom_560m_train", "BloomForCausalLM", "train", "bf16", 4, 512, LM, "eager", hidden_size=1024, n_head=16,
       vocab_size=250880),
    hf("mpt_prefill", "MptForCausalLM", "infer", "bf16", 2, 1024, IDS, "eager", d_model=2048, n_heads=16),
    hf("opt_13b_infer", "OPTForCausalLM", "infer", "f16", 8, 512, PADDED, "eager", hidden_size=2048, ffn_dim=8192,
       num_attention_heads=32, word_embed_proj_dim=2048),
    hf("olmo2_1b_train", "Olmo2ForCausalLM", "train", "bf16", 2, 2048, LM, "sdpa", hidden_size=2048,
       intermediate_size=8192, num_attention_heads=16, vocab_size=100352),
    hf("olmo_1b_infer", "OlmoForCausalLM", "infer", "f32", 2, 1024, IDS, "eager", hidden_size=2048,
       intermediate_size=8192, num_attention_heads=16),
    hf("cohere_infer", "CohereForCausalLM", "infer", "bf16", 1, 2048, IDS, "eager", hidden_size=4096,
       intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, vocab_size=128000),
    hf("starcoder2_3b_train", "Starcoder2ForCausalLM", "train", "bf16", 2, 1024, LM, "sdpa", "sgd"),
    hf("stablelm_train", "StableLmForCausalLM", "train", "f32", 2, 1024, LM, "eager", hidden_size=2048,
       intermediate_size=5632, num_attention_heads=32, num_key_value_heads=32, vocab_size=50304),
    hf("nemotron_infer", "NemotronForCausalLM", "infer", "bf16", 1, 2048, IDS, "eager", hidden_size=3072,
       intermediate_size=9216, num_attention_heads=24, num_key_value_heads=8, head_dim=128, vocab_size=32000),
    hf("diffllama_train", "DiffLlamaForCausalLM", "train", "bf16", 2, 1024, LM, "eager"),
    hf("apertus_infer", "ApertusForCausalLM", "infer", "bf16", 1, 2048, IDS, "sdpa", vocab_size=32000),
    hf("mixtral_prefill", "MixtralForCausalLM", "infer", "bf16", 1, 2048, IDS, "sdpa", num_hidden_layers=1),
    hf("olmoe_train", "OlmoeForCausalLM", "train", "bf16", 1, 1024, LM, "sdpa", num_hidden_layers=1),
    hf("qwen3_moe_prefill", "Qwen3MoeForCausalLM", "infer", "bf16", 1, 2048, IDS, "sdpa", hidden_size=2048,
       moe_intermediate_size=768, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=64),
    hf("gpt_oss_prefill", "GptOssForCausalLM", "infer", "bf16", 1, 1024, IDS, "eager", num_local_experts=16,
       num_hidden_layers=2, vocab_size=50304),
    hf("deepseek_v3_prefill", "DeepseekV3ForCausalLM", "infer", "bf16", 1, 1024, IDS, "eager", n_routed_experts=16,
       n_group=4, topk_group=2, num_experts_per_tok=4, num_attention_heads=64, num_key_value_heads=64,
       first_k_dense_replace=1, vocab_size=32000),
    hf("deepseek_v2_lite_train", "DeepseekV2ForCausalLM", "train", "bf16", 1, 1024, LM, "sdpa", hidden_size=2048,
       intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=16, n_shared_experts=2,
       num_attention_heads=16, num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, first_k_dense_replace=1,
       num_experts_per_tok=4, topk_method="greedy", n_group=None, topk_group=None, vocab_size=32000),
    hf("mamba_130m_infer", "MambaForCausalLM", "infer", "f32", 4, 64, IDS, "", num_hidden_layers=1),
    hf("mamba2_train", "Mamba2ForCausalLM", "train", "bf16", 1, 512, LM, "", hidden_size=768, num_heads=24,
       expand=2, head_dim=64, state_size=128, n_groups=1, vocab_size=50288),
    hf("bamba_infer", "BambaForCausalLM", "infer", "bf16", 1, 512, IDS, "sdpa", hidden_size=2048, vocab_size=32000,
       intermediate_size=8192, num_attention_heads=16, num_key_value_heads=4, attn_layer_indices=[1],
       mamba_n_heads=64, mamba_d_head=64, mamba_d_state=128),
    hf("falcon_h1_infer", "FalconH1ForCausalLM", "infer", "bf16", 1, 512, IDS, "eager", hidden_size=1024,
       vocab_size=32000),
    hf("jamba_infer", "JambaForCausalLM", "infer", "bf16", 2, 48, IDS, "eager", hidden_size=2048, vocab_size=32000,
       intermediate_size=4096, num_attention_heads=16, num_key_value_heads=4, attn_layer_period=2,
       attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=4, use_mamba_kernels=False),
    hf("rwkv_infer", "RwkvForCausalLM", "infer", "f32", 4, 48, IDS, "", hidden_size=1024, attention_hidden_size=1024),
    hf("recurrent_gemma_infer", "RecurrentGemmaForCausalLM", "infer", "f32", 1, 64, IDS, "eager", hidden_size=2560,
       num_hidden_layers=3, vocab_size=32000, intermediate_size=7680),
    hf("lfm2_train", "Lfm2ForCausalLM", "train", "bf16", 2, 1024, LM, "sdpa", hidden_size=1024, intermediate_size=4096,
       num_attention_heads=16, num_key_value_heads=8, layer_types=["conv", "full_attention"], vocab_size=65536),
    hf("qwen3_next_infer", "Qwen3NextForCausalLM", "infer", "bf16", 1, 512, IDS, "sdpa", num_experts=16,
       num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], vocab_size=32000),
    hf("xlnet_train", "XLNetLMHeadModel", "train", "f32", 8, 256, LM, ""),
)  # fmt: skip

ENCODERS = (
    hf("bert_base_train", "BertForMaskedLM", "train", "f32", 16, 128, PADDED_LM, "eager"),
    hf("bert_large_infer", "BertForSequenceClassification", "infer", "f16", 32, 384, PADDED, "sdpa", hidden_size=1024,
       intermediate_size=4096, num_attention_heads=16),
    hf("roberta_train", "RobertaForSequenceClassification", "train", "autocast", 32, 128, CLASSES, "eager",
       vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1),
    hf("deberta_v2_train", "DebertaV2ForSequenceClassification", "train", "f32", 8, 256, CLASSES, "", hidden_size=768,
       num_attention_heads=12, intermediate_size=3072, relative_attention=True, position_buckets=256,
       norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], max_relative_positions=-1),
    hf("albert_infer", "AlbertForMaskedLM", "infer", "f32", 16, 256, PADDED, "sdpa", hidden_size=768,
       num_attention_heads=12, intermediate_size=3072),
    hf("distilbert_infer", "DistilBertForSequenceClassification", "infer", "f32", 64, 128, PADDED, "eager", n_layers=2),
    hf("electra_train", "ElectraForPreTraining", "train", "f16", 32, 128, f"{PADDED} labels=below2:b,s", "eager"),
    hf("modernbert_train", "ModernBertForMaskedLM", "train", "bf16", 8, 1024, PADDED_LM, "sdpa"),
    hf("mpnet_infer", "MPNetModel", "infer", "f32", 32, 256, PADDED, "eager"),
    hf("roformer_train", "RoFormerForMaskedLM", "train", "f32", 8, 512, PADDED_LM, ""),
    hf("fnet_train", "FNetForMaskedLM", "train", "f32", 16, 512, LM, ""),
    hf("longformer_train", "LongformerForMaskedLM", "train", "f32", 1, 2048, PADDED_LM, "", attention_window=512,
       max_position_embeddings=4098),
    hf("bigbird_infer", "BigBirdForMaskedLM", "infer", "f32", 2, 1024, PADDED, ""),
    hf("nystromformer_infer", "NystromformerForMaskedLM", "infer", "f32", 4, 512, PADDED, "", max_position_embeddings=512),
    hf("convbert_train", "ConvBertForMaskedLM", "train", "f32", 8, 256, PADDED_LM, ""),
    hf("funnel_infer", "FunnelModel", "infer", "f32", 8, 256, PADDED, "", block_sizes=[1, 1, 1]),
    hf("mobilebert_infer", "MobileBertModel", "infer", "f32", 16, 128, PADDED, "eager"),
    hf("ibert_infer", "IBertModel", "infer", "f32", 8, 128, PADDED, "", quant_mode=True),
    hf("esm_train", "EsmForMaskedLM", "train", "bf16", 4, 512, PADDED_LM, "eager", vocab_size=33, hidden_size=1280,
       num_attention_heads=20, intermediate_size=5120, position_embedding_type="rotary", pad_token_id=1,
       mask_token_id=32, token_dropout=True),
    hf("perceiver_infer", "PerceiverForMaskedLM", "infer", "f32", 4, 2048, "inputs=ids:b,s", "", vocab_size=262,
       num_self_attends_per_block=2, num_blocks=1),
)  # fmt: skip

ENCODER_DECODERS = (
    hf("t5_base_train", "T5ForConditionalGeneration", "train", "bf16", 8, 512, SEQ2SEQ, "eager", d_model=768,
       d_kv=64, d_ff=3072, num_heads=12, num_decoder_layers=2),
    hf("flan_t5_large_infer", "T5ForConditionalGeneration", "infer", "f32", 4, 512, SEQ2SEQ, "", d_model=1024, d_kv=64,
       d_ff=2816, num_heads=16, feed_forward_proj="gated-gelu", num_decoder_layers=2, tie_word_embeddings=False),
    hf("bart_base_train", "BartForConditionalGeneration", "train", "f32", 8, 512, SEQ2SEQ, "sdpa", d_model=768,
       encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12),
    hf("pegasus_infer", "PegasusForConditionalGeneration", "infer", "f16", 4, 512, SEQ2SEQ, "eager",
       vocab_size=96103),
    hf("longt5_train", "LongT5ForConditionalGeneration", "train", "bf16", 1, 2048, SEQ2SEQ, "", d_model=768, d_kv=64,
       d_ff=2048, num_heads=12, encoder_attention_type="local", num_decoder_layers=2),
    hf("switch_infer", "SwitchTransformersForConditionalGeneration", "infer", "bf16", 4, 256, SEQ2SEQ, "",
       num_decoder_layers=2),
    hf("whisper_small_train", "WhisperForConditionalGeneration", "train", "bf16", 4, 448,
       "input_features=float:b,80,3000 labels=ids:b,s", "sdpa", d_model=768, encoder_ffn_dim=3072,
       decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12),
    hf("whisper_large_infer", "WhisperForConditionalGeneration", "infer", "f16", 4, 64,
       "input_features=float:b,80,3000 decoder_input_ids=ids:b,s", "eager", d_model=1280, encoder_ffn_dim=5120,
       decoder_ffn_dim=5120, encoder_attention_heads=20, decoder_attention_heads=20),
)  # fmt: skip

SPEECH = (
    hf("wav2vec2_train", "Wav2Vec2Model", "train", "f32", 4, 80000, SOUND, "eager"),
    hf("hubert_large_infer", "HubertModel", "infer", "f16", 4, 160000, SOUND, "sdpa", hidden_size=1024,
       num_attention_heads=16, intermediate_size=4096, feat_extract_norm="layer", conv_bias=True,
       do_stable_layer_norm=True),
    hf("wavlm_infer", "WavLMModel", "infer", "f32", 4, 80000, SOUND, ""),
    hf("conformer_train", "Wav2Vec2ConformerModel", "train", "bf16", 4, 80000, SOUND, ""),
    hf("ast_infer", "ASTForAudioClassification", "infer", "bf16", 8, 1024, "input_values=float:b,s,128", "sdpa"),
    hf("encodec_infer", "EncodecModel", "infer", "f32", 8, 24000, "input_values=float:b,1,s", "", depth_free=True),
    hf("hifigan_infer", "SpeechT5HifiGan", "infer", "f32", 8, 256, "spectrogram=float:b,s,80", ""),
)  # fmt: skip

VISION = (
    hf("vit_train", "ViTForImageClassification", "train", "bf16", 64, 224, IMAGES, "eager", num_labels=1000),
    hf("deit_infer", "DeiTForImageClassification", "infer", "f32", 64, 224, PIXELS, "sdpa", num_labels=1000),
    hf("swin_tiny_train", "SwinForImageClassification", "train", "f32", 32, 224, IMAGES, "", num_labels=1000,
       depths=[2, 2, 2, 2]),
    hf("swinv2_infer", "Swinv2ForImageClassification", "infer", "bf16", 64, 256, PIXELS, "", image_size=256,
       window_size=8, depths=[2, 2, 2, 2]),
    hf("convnext_train", "ConvNextForImageClassification", "train", "autocast", 32, 224, IMAGES, "", num_labels=1000,
       depths=[1, 1, 2, 1]),
    hf("convnextv2_infer", "ConvNextV2ForImageClassification", "infer", "f32", 32, 224, PIXELS, "",
       depths=[1, 1, 2, 1]),
    hf("dinov2_infer", "Dinov2Model", "infer", "bf16", 32, 518, PIXELS, "sdpa", patch_size=14, image_size=518),
    hf("segformer_b2_train", "SegformerForSemanticSegmentation", "train", "f32", 4, 512,
       f"{PIXELS} labels=below150:b,s,s", "", num_labels=150, depths=[1, 1, 1, 1], hidden_sizes=[64, 128, 320, 512],
       decoder_hidden_size=768),
    hf("detr_infer", "DetrModel", "infer", "f32", 4, 640, PIXELS, "", use_timm_backbone=False,
       use_pretrained_backbone=False, backbone_config="ResNetConfig"),
    hf("mask2former_infer", "Mask2FormerModel", "infer", "f32", 2, 384, PIXELS, "", decoder_layers=3),
    hf("deformable_detr_infer", "DeformableDetrModel", "infer", "f32", 2, 512, PIXELS, "", use_timm_backbone=False,
       use_pretrained_backbone=False, backbone_config="ResNetConfig", backbone_features=["stage2", "stage3", "stage4"]),
    hf("sam_vision_infer", "SamVisionModel", "infer", "bf16", 1, 1024, PIXELS, "eager", config="SamVisionConfig",
       num_hidden_layers=4, global_attn_indexes=[1, 3]),
    hf("clip_train", "CLIPModel", "train", "f16", 64, 224,
       f"input_ids=below49408:b,77 {PIXELS} return_loss=true", "sdpa", "lion", depth_free=True),
    hf("siglip_infer", "SiglipVisionModel", "infer", "bf16", 64, 224, PIXELS, "sdpa", config="SiglipVisionConfig"),
    hf("beit_train", "BeitForImageClassification", "train", "f32", 32, 224, IMAGES, "eager", num_labels=1000,
       use_relative_position_bias=True),
    hf("mobilevit_infer", "MobileViTForImageClassification", "infer", "f32", 64, 256, PIXELS, ""),
    hf("poolformer_train", "PoolFormerForImageClassification", "train", "f32", 32, 224, IMAGES, "", num_labels=1000,
       depths=[1, 1, 1, 1]),
    hf("focalnet_infer", "FocalNetForImageClassification", "infer", "f32", 32, 224, PIXELS, "", depths=[1, 1, 2, 1]),
    hf("pvt_v2_infer", "PvtV2ForImageClassification", "infer", "f32", 32, 224, PIXELS, "", depths=[1, 1, 1, 1]),
    hf("vitmae_train", "ViTMAEForPreTraining", "train", "bf16", 64, 224, PIXELS, "sdpa", decoder_num_hidden_layers=2),
    hf("videomae_train", "VideoMAEForVideoClassification", "train", "bf16", 4, 224, f"{VIDEO} labels=below2:b", "sdpa"),
    hf("timesformer_infer", "TimesformerModel", "infer", "f32", 2, 224, "pixel_values=float:b,8,3,s,s", ""),
    hf("dpt_infer", "DPTForDepthEstimation", "infer", "f32", 4, 384, PIXELS, "eager", num_hidden_layers=4,
       backbone_out_indices=[0, 1, 2, 3]),
    hf("swin2sr_infer", "Swin2SRForImageSuperResolution", "infer", "f32", 1, 128, PIXELS, "", depths=[2, 2],
       num_heads=[6, 6]),
    hf("vilt_infer", "ViltModel", "infer", "f32", 8, 384, f"input_ids=ids:b,40 {PIXELS}", ""),
    hf("patchtst_train", "PatchTSTForPrediction", "train", "f32", 64, 512, f"{SERIES} future_values=float:b,96,7", "",
       num_input_channels=7, context_length=512, prediction_length=96, patch_length=16, patch_stride=8, d_model=128,
       num_attention_heads=16, ffn_dim=256),
    hf("patchtsmixer_train", "PatchTSMixerForPrediction", "train", "f32", 64, 512,
       f"{SERIES} future_values=float:b,96,7", "", num_input_channels=7, context_length=512, prediction_length=96,
       patch_length=16, patch_stride=8, d_model=128, num_layers=2),
    hf("informer_train", "InformerForPrediction", "train", "f32", 64, 55,
       "past_values=float:b,s past_time_features=float:b,s,4 past_observed_mask=ones:b,s future_values=float:b,24"
       " future_time_features=float:b,24,4", "", prediction_length=24, context_length=48, num_time_features=4,
       d_model=512, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8),
    hf("autoformer_infer", "AutoformerForPrediction", "infer", "f32", 32, 103,
       "past_values=float:b,s past_time_features=float:b,s,4 past_observed_mask=ones:b,s future_values=float:b,24"
       " future_time_features=float:b,24,4", "", prediction_length=24, context_length=96, num_time_features=4,
       d_model=512, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8),
)  # fmt: skip

CLASSIC = (
    tv("resnet50_train", "resnet50", "train", "f32", 64, 224, optimizer="sgd"),
    tv("resnet50_infer", "resnet50", "infer", "f16", 128, 224, channels_last=True),
    tv("efficientnet_b0_train", "efficientnet_b0", "train", "autocast", 64, 224, optimizer="sgd", channels_last=True),
    tv("efficientnet_v2_s_infer", "efficientnet_v2_s", "infer", "bf16", 32, 384, channels_last=True),
    tv("mobilenet_v3_infer", "mobilenet_v3_large", "infer", "f32", 128, 224),
    tv("densenet121_train", "densenet121", "train", "f32", 32, 224, optimizer="sgd"),
    tv("regnet_infer", "regnet_y_8gf", "infer", "bf16", 64, 224, channels_last=True),
    tv("vgg16_train", "vgg16", "train", "f32", 32, 224, optimizer="sgd"),
    tv("inception_v3_infer", "inception_v3", "infer", "f32", 64, 299),
    tv("shufflenet_train", "shufflenet_v2_x1_0", "train", "f32", 128, 224, optimizer="sgd"),
    tv("resnext50_infer", "resnext50_32x4d", "infer", "f32", 32, 224),
    tv("mnasnet_train", "mnasnet1_0", "train", "autocast", 64, 224, optimizer="sgd"),
    tv("squeezenet_infer", "squeezenet1_1", "infer", "f32", 128, 224),
    tv("maxvit_infer", "maxvit_t", "infer", "bf16", 16, 224),
    tv("deeplabv3_train", "segmentation.deeplabv3_resnet50", "train", "f32", 4, 480, optimizer="sgd"),
    tv("fcn_infer", "segmentation.fcn_resnet50", "infer", "f16", 8, 520, channels_last=True),
    tv("lraspp_infer", "segmentation.lraspp_mobilenet_v3_large", "infer", "f32", 8, 520),
    tv("r3d_train", "video.r3d_18", "train", "f32", 4, 112, "b,3,16,s,s", optimizer="sgd"),
    tv("r2plus1d_infer", "video.r2plus1d_18", "infer", "bf16", 8, 112, "b,3,16,s,s"),
    tv("swin3d_infer", "video.swin3d_t", "infer", "bf16", 2, 224, "b,3,16,s,s"),
    tv("mvit_infer", "video.mvit_v2_s", "infer", "f32", 2, 224, "b,3,16,s,s"),
    tv("raft_infer", "optical_flow.raft_small", "infer", "f32", 2, 256),
    tv("retinanet_infer", "detection.retinanet_resnet50_fpn_v2", "infer", "f32", 2, 512),
    tm("mixer_b16_224", "train", "bf16", 64),
    tm("convmixer_768_32", "infer", "f32", 16),
    tm("coatnet_0_rw_224", "infer", "bf16", 32),
    tm("xcit_tiny_12_p16_224", "train", "f32", 32),
    tm("cait_xxs24_224", "infer", "f32", 32),
    tm("nfnet_l0", "train", "f32", 32, optimizer="sgd"),
    tm("hrnet_w18", "infer", "f32", 32),
    tm("repvgg_b0", "infer", "f16", 64, channels_last=True),
    tm("ghostnet_100", "train", "f32", 64, optimizer="sgd"),
    tm("fastvit_t8", "infer", "bf16", 64, 256),
    tm("edgenext_small", "infer", "f32", 32, 256),
    tm("davit_tiny", "train", "bf16", 32),
    tm("eva02_tiny_patch14_224", "train", "bf16", 64),
    tm("res2net50_26w_4s", "infer", "f32", 32),
    tm("convit_tiny", "infer", "f32", 32),
    tm("mobilenetv4_conv_small", "train", "autocast", 128, optimizer="sgd", channels_last=True),
    tm("resnetaa50", "infer", "f32", 32),
    tm("ecaresnet26t", "train", "f32", 32, optimizer="sgd"),
    tm("gmlp_s16_224", "infer", "bf16", 64),
    tm("volo_d1_224", "infer", "f32", 16),
)

GRAPHS = (
    graph("GCNConv", "train", "f32", 169343, 14, 256, features=128),
    graph("GATConv", "train", "f32", 50000, 10, 64, heads=8, features=602),
    graph("GATv2Conv", "infer", "f32", 100000, 10, 32, heads=4, features=128),
    graph("SAGEConv", "train", "f32", 169343, 14, 256, features=100),
    graph("GINConv", "train", "f32", 40000, 3, 300, features=300),
    graph("PNAConv", "train", "f32", 20000, 4, 75, features=75),
    graph("TransformerConv", "train", "bf16", 50000, 8, 64, heads=4, features=128),
    graph("ChebConv", "infer", "f32", 60000, 8, 64, features=128),
    graph("RGCNConv", "train", "f32", 20000, 8, 64, relations=8, features=64),
    graph("NNConv", "infer", "f32", 10000, 2, 32, features=32),
)

PLAIN = (
    plain("unet_infer", "infer", "bf16", 4, 64, maker="unet"),
    plain("unet_train", "train", "autocast", 4, 64, maker="unet"),
    plain("dit_train", "train", "bf16", 32, 32, maker="dit"),
    plain("dit_infer", "infer", "f16", 16, 32, maker="dit"),
    plain("vae_decoder_infer", "infer", "f32", 2, 64, maker="vae_decoder"),
    plain("dlrm_train", "train", "f32", 8192, 26, "sgd", maker="dlrm"),
    plain("dlrm_infer", "infer", "f16", 16384, 26, maker="dlrm"),
    plain("lstm_lm_train", "train", "f32", 32, 35, "sgd", maker="rnn", cell="LSTM"),
    plain("gru_infer", "infer", "f32", 64, 200, maker="rnn", cell="GRU"),
    plain("lstm_cell_infer", "infer", "f32", 64, 24, maker="lstm_cells"),
    plain("pointnet_train", "train", "f32", 32, 2048, maker="pointnet"),
    plain("nerf_train", "train", "f32", 4096, 64, maker="nerf"),
    plain("wavenet_infer", "infer", "f32", 4, 16000, maker="wavenet"),
    plain("vqvae_train", "train", "f32", 32, 64, maker="vqvae"),
    plain("lion_mlp_train", "train", "bf16", 4096, 4096, "lion", maker="mlp"),
    plain("fftconv_infer", "infer", "f32", 4, 4096, maker="fftconv"),
    plain("retention_train", "train", "bf16", 4, 1024, maker="retention"),
    plain("int8_linear_infer", "infer", "bf16", 2048, 4096, maker="int8_linear"),
    plain("contrastive_train", "train", "f32", 1024, 512, maker="contrastive"),
    plain("super_resolution_infer", "infer", "f16", 1, 256, maker="super_resolution"),
    plain("gan_discriminator_train", "train", "f32", 32, 128, maker="discriminator"),
)

ROWS: tuple[Row, ...] = (
    *DECODERS, *ENCODERS, *ENCODER_DECODERS, *SPEECH, *VISION, *CLASSIC, *GRAPHS, *PLAIN,
)  # fmt: skip


def in_order(rows: Sequence[Row]) -> list[Row]:
    """By a hash of the name, so that a machine's time that runs out takes no family more than another."""
    return sorted(rows, key=lambda row: hashlib.sha256(row.name.encode()).hexdigest())


# Making a model: MAKERS[row.maker](row, place) imports what it needs and gives a function that builds on the device.


@dataclass(frozen=True)
class Place:
    """Where and how large: tiny is for a dry run on the CPU."""

    device: str
    tiny: bool

    def batch(self, row: Row) -> int:
        return min(row.batch, 2) if self.tiny else row.batch


@dataclass(frozen=True)
class Made:
    """A model, and its call: the outputs, or the loss where it trains."""

    model: Any
    call: Call


DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "autocast": "float32"}

DEPTHS = (
    "num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_layers", "num_encoder_layers",
)  # fmt: skip
WIDTHS = frozenset(
    """hidden_size intermediate_size head_dim n_embd d_model d_kv d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim
    moe_intermediate_size word_embed_proj_dim attention_hidden_size embedding_size ffn_hidden_size lru_width
    shared_expert_intermediate_size vocab_size d_inner dim hidden_dim""".split()
)
TINY = 8


def make_transformers(row: Row, place: Place) -> Callable[[], Made]:
    import torch
    import transformers

    spec = row.spec
    model_class = getattr(transformers, spec["model"])
    config_class = getattr(transformers, spec["config"]) if spec["config"] else model_class.config_class
    options = dict(spec["options"])
    depth_free = options.pop("depth_free", False)
    features = options.pop("backbone_features", ["stage4"])
    if options.get("backbone_config") == "ResNetConfig":
        options["backbone_config"] = transformers.ResNetConfig(out_features=features, depths=[1, 1, 1, 1])
    default = config_class()
    known = {k: v for k, v in default.to_dict().items() if not isinstance(v, bool)}
    if not depth_free:
        options = {k: min(v, DEPTH) for k in DEPTHS if isinstance(v := known.get(k), int)} | options
    if place.tiny:
        for key in WIDTHS:
            value = options.get(key, known.get(key))
            if isinstance(value, int) and value >= 16 * TINY:
                options[key] = value // TINY
    config = config_class(**options)
    vocabulary = getattr(config, "vocab_size", None) or 1000

    def build() -> Made:
        dtype = getattr(torch, DTYPES[row.dtype])
        chosen = {"attn_implementation": row.attention} if row.attention else {}
        with torch.device(place.device):
            model = model_class._from_config(config, dtype=dtype, **chosen)
        model.to(place.device)
        if hasattr(model.config, "use_cache") and row.mode == "train":
            model.config.use_cache = False
        batch = place.batch(row)
        size = min(row.size, 32) if place.tiny and "ids:b,s" in spec["inputs"] else row.size
        given = read_inputs(spec["inputs"], batch, size, vocabulary, dtype, place.device)
        if row.mode == "decode":
            cache = model(**given, use_cache=True).past_key_values
            given = {"input_ids": given["input_ids"][:, -1:], "past_key_values": cache}
        return Made(model, lambda: loss_of(model(**given)) if row.mode == "train" else model(**given))

    return build


def read_inputs(text: str, batch: int, size: int, vocabulary: int, dtype: Any, device: str) -> dict[str, Any]:
    """`name=kind:sizes` of each input: b is the batch, s the size. ids are below the vocabulary, belowN below N."""
    import torch

    made: dict[str, Any] = {}
    for item in text.split():
        name, _, what = item.partition("=")
        kind, _, sizes = what.partition(":")
        if kind == "true":
            made[name] = True
            continue
        known = {"b": batch, "s": size, "s/4": max(1, size // 4)}
        shape = [known[s] if s in known else int(s) for s in sizes.split(",")]
        if kind == "ids" or kind.startswith("below"):
            below = vocabulary if kind == "ids" else int(kind[5:])
            made[name] = torch.randint(min(3, below - 2), below - 1 if below > 2 else 2, shape, device=device)
        elif kind == "mask":
            lengths = torch.linspace(0.5, 1.0, shape[0], device=device).mul(shape[1]).ceil().long()
            made[name] = (torch.arange(shape[1], device=device) < lengths[:, None]).long()
        elif kind == "ones":
            made[name] = torch.ones(shape, device=device, dtype=dtype)
        else:
            made[name] = torch.randn(shape, device=device, dtype=dtype)
    return made


def loss_of(output: Any) -> Any:
    """The model's own loss; without one the mean of the squares of its first floating output."""
    import torch

    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    return tensors_of(output)[0].float().square().mean()


def tensors_of(output: Any) -> list[Any]:
    import torch

    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, list | tuple) else ()
    return [t for part in parts for t in tensors_of(part)]


def make_torchvision(row: Row, place: Place) -> Callable[[], Made]:
    import torch
    import torchvision

    maker: Any = torchvision.models
    for part in row.spec["model"].split("."):
        maker = getattr(maker, part)
    backbone = {"weights_backbone": None} if "weights_backbone" in inspect.signature(maker).parameters else {}

    def build() -> Made:
        with torch.device(place.device):
            model = maker(weights=None, **backbone)
        return make_images(model, row, place)

    return build


def make_timm(row: Row, place: Place) -> Callable[[], Made]:
    import timm
    import torch

    def build() -> Made:
        with torch.device(place.device):
            model = timm.create_model(row.spec["model"], pretrained=False)
        return make_images(model, row, place)

    return build


def make_images(model: Any, row: Row, place: Place) -> Made:
    import torch
    import torch.nn.functional as F

    dtype = getattr(torch, DTYPES[row.dtype])
    model = model.to(place.device, dtype)
    known = {"b": place.batch(row), "s": row.size // 2 if place.tiny and row.maker == "torchvision" else row.size}
    shape = [known[s] if s in known else int(s) for s in row.spec.get("shape", "b,3,s,s").split(",")]
    images = torch.randn(shape, device=place.device, dtype=dtype)
    if row.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    if "optical_flow" in str(row.spec["model"]):
        return Made(model, lambda: model(images, images.flip(0), num_flow_updates=2))
    if "detection" in str(row.spec["model"]):
        return Made(model, lambda: model(list(images)))
    classes = 21 if "segmentation" in row.spec["model"] else 400 if "video" in row.spec["model"] else 1000
    places = shape[:1] + (shape[2:] if classes == 21 else [])
    labels = torch.randint(0, classes, places, device=place.device)

    def call() -> Any:
        output = model(images)
        if row.mode != "train":
            return output
        return F.cross_entropy(tensors_of(output)[0], labels)

    return Made(model, call)


def make_graph(row: Row, place: Place) -> Callable[[], Made]:
    import torch
    import torch.nn.functional as F
    import torch_geometric.nn as gnn

    spec = row.spec

    def layer(given: int, width: int, edges: Any) -> Any:
        name = spec["layer"]
        if name == "GINConv":
            part = torch.nn
            return gnn.GINConv(
                part.Sequential(
                    part.Linear(given, 2 * width),
                    part.BatchNorm1d(2 * width),
                    part.ReLU(),
                    part.Linear(2 * width, width),
                )  # fmt: skip
            )
        if name == "PNAConv":
            degrees = torch.bincount(torch.bincount(edges[1]))
            kinds, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
            return gnn.PNAConv(given, width, kinds, scalers, degrees, towers=5 if given % 5 == 0 else 1)
        if name == "ChebConv":
            return gnn.ChebConv(given, width, K=3)
        if name == "RGCNConv":
            return gnn.RGCNConv(given, width, spec["relations"], num_bases=4)
        if name == "NNConv":
            return gnn.NNConv(given, width, torch.nn.Linear(8, given * width), aggr="mean")
        if "heads" in spec:
            return getattr(gnn, name)(given, width, heads=spec["heads"])
        return getattr(gnn, name)(given, width)

    def build() -> Made:
        dtype = getattr(torch, DTYPES[row.dtype])
        nodes = 500 if place.tiny else row.size
        with torch.device(place.device):
            edges = torch.randint(0, nodes, (2, nodes * row.batch))
            x = torch.randn(nodes, spec["features"], dtype=dtype)
            labels = torch.randint(0, 40, (nodes,))
            wide = spec["width"] * spec.get("heads", 1)
            first = layer(spec["features"], spec["width"], edges).to(place.device, dtype)
            second = layer(wide, spec["width"], edges).to(place.device, dtype)
            norm = torch.nn.LayerNorm(wide, dtype=dtype)
            head = torch.nn.Linear(wide, 40, dtype=dtype)
            more: tuple[Any, ...] = ()
            if spec["layer"] == "RGCNConv":
                more = (torch.randint(0, spec["relations"], (edges.shape[1],)),)
            if spec["layer"] == "NNConv":
                more = (torch.randn(edges.shape[1], 8, dtype=dtype),)
        model = torch.nn.ModuleList([first, norm, second, head])

        def call() -> Any:
            hidden = F.dropout(F.relu(norm(first(x, edges, *more))), 0.5, model.training)
            output = head(F.elu(second(hidden, edges, *more)))
            return F.cross_entropy(output, labels) if row.mode == "train" else output.log_softmax(-1)

        return Made(model, call)

    return build


PlainMaker = Callable[[Any, Any, Row, int, int], tuple[Any, Call]]


def make_plain(write: PlainMaker) -> Callable[[Row, Place], Callable[[], Made]]:
    """Of a function of (torch.nn, torch.nn.functional, row, batch, size) that gives the modules and the call."""

    def make(row: Row, place: Place) -> Callable[[], Made]:
        import torch
        import torch.nn.functional as F

        def build() -> Made:
            dtype = getattr(torch, DTYPES[row.dtype])
            torch.set_default_dtype(dtype)
            size = min(row.size, 64) if place.tiny else row.size
            with torch.device(place.device):
                model, call = write(torch.nn, F, row, place.batch(row), size)
            torch.set_default_dtype(torch.float32)
            return Made(model, call)

        return build

    return make


def noise_loss(F: Any, output: Any, row: Row) -> Any:
    import torch

    return F.mse_loss(output.float(), torch.zeros_like(output).float()) if row.mode == "train" else output


def unet(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A latent diffusion U-Net's stages: two residual blocks, one of them with attention, down and up once."""
    import torch

    width = 320

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, given: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, given), nn.GroupNorm(32, out)
            self.conv1, self.conv2 = nn.Conv2d(given, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.time = nn.Linear(1280, out)
            self.skip = nn.Conv2d(given, out, 1) if given != out else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, heads: int, context: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm, self.q, self.out = nn.LayerNorm(width), nn.Linear(width, width, False), nn.Linear(width, width)
            self.k, self.v = nn.Linear(context, width, False), nn.Linear(context, width, False)

        def forward(self, x: Any, context: Any | None = None) -> Any:
            h = self.norm(x)
            c = h if context is None else context
            split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(h), self.k(c), self.v(c))]
            return x + self.out(F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2))

    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.enter = nn.GroupNorm(32, width), nn.Conv2d(width, width, 1)
            self.own, self.cross = Attention(width, 8, width), Attention(width, 8, 768)
            self.norm3, self.up, self.down = (
                nn.LayerNorm(width),
                nn.Linear(width, 8 * width),
                nn.Linear(4 * width, width),
            )
            self.leave = nn.Conv2d(width, width, 1)

        def forward(self, x: Any, context: Any) -> Any:
            h = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
            h = self.cross(self.own(h), context)
            a, gate = self.up(self.norm3(h)).chunk(2, -1)
            h = h + self.down(a * F.gelu(gate))
            return x + self.leave(h.transpose(1, 2).unflatten(2, x.shape[2:]))

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(4, width, 3, padding=1)
            self.time = nn.Sequential(nn.Linear(width, 1280), nn.SiLU(), nn.Linear(1280, 1280))
            self.a, self.at = Residual(width, width), Transformer(width)
            self.down = nn.Conv2d(width, width, 3, 2, 1)
            self.b, self.bt = Residual(width, 2 * width), Transformer(2 * width)
            self.up = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
            self.c = Residual(3 * width, width)
            self.norm, self.leave = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

        def forward(self, x: Any, t: Any, context: Any) -> Any:
            scale = torch.exp(-9.21 * torch.arange(width // 2, device=x.device) / (width // 2))
            angle = t[:, None].float() * scale
            t = self.time(torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype))
            a = self.at(self.a(self.enter(x), t), context)
            b = self.bt(self.b(self.down(a), t), context)
            b = self.up(F.interpolate(b, scale_factor=2.0, mode="nearest"))
            c = self.c(torch.cat([a, b], 1), t)
            return self.leave(F.silu(self.norm(c)))

    net = Net()
    x, t, context = torch.randn(batch, 4, size, size), torch.rand(batch), torch.randn(batch, 77, 768)
    return net, lambda: noise_loss(F, net(x, t, context), row)


def dit(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A diffusion transformer (XL/2): adaptive layer norm from time and class."""
    import torch

    width, heads = 1152, 16

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.adapt = nn.Linear(width, 6 * width)

        def forward(self, x: Any, c: Any) -> Any:
            shift1, scale1, gate1, shift2, scale2, gate2 = self.adapt(F.silu(c)).chunk(6, 1)
            h = self.norm1(x) * (1 + scale1.unsqueeze(1)) + shift1.unsqueeze(1)
            q, k, v = self.qkv(h).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + gate1.unsqueeze(1) * self.out(h)
            h = self.norm2(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1)
            return x + gate2.unsqueeze(1) * self.down(F.gelu(self.up(h), approximate="tanh"))

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.classes = nn.Conv2d(4, width, 2, 2), nn.Embedding(1001, width)
            self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.adapt = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * width)
            self.leave = nn.Linear(width, 16)

        def forward(self, x: Any, t: Any, y: Any) -> Any:
            scale = torch.exp(-9.21 * torch.arange(128, device=x.device) / 128)
            angle = t[:, None].float() * scale
            c = self.time(torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)) + self.classes(y)
            h = self.patch(x).flatten(2).transpose(1, 2)
            for block in self.blocks:
                h = block(h, c)
            shift, gain = self.adapt(F.silu(c)).chunk(2, 1)
            h = self.leave(self.norm(h) * (1 + gain.unsqueeze(1)) + shift.unsqueeze(1))
            side = x.shape[-1] // 2
            return (
                h.unflatten(1, (side, side)).unflatten(-1, (2, 2, 4)).permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
            )

    net = Net()
    x, t, y = torch.randn(batch, 4, size, size), torch.rand(batch), torch.randint(0, 1000, (batch,))
    return net, lambda: noise_loss(F, net(x, t, y), row)


def vae_decoder(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Of latent diffusion: group norm, SiLU, convolutions, nearest upsampling, 512 to 128 channels."""
    import torch

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, given: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, given, 1e-6), nn.GroupNorm(32, out, 1e-6)
            self.conv1, self.conv2 = nn.Conv2d(given, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.skip = nn.Conv2d(given, out, 1) if given != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x)))
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    up = nn.Upsample(scale_factor=2.0)
    net = nn.Sequential(
        nn.Conv2d(4, 512, 3, padding=1), Residual(512, 512), up, nn.Conv2d(512, 512, 3, padding=1), Residual(512, 256), up,
        nn.Conv2d(256, 256, 3, padding=1), Residual(256, 128), nn.GroupNorm(32, 128), nn.SiLU(),
        nn.Conv2d(128, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    x = torch.randn(batch, 4, size, size)
    return net, lambda: net(x)


def dlrm(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Embeddings of 26 tables, a bottom and a top MLP, products of all pairs."""
    import torch

    tables = nn.ModuleList([nn.EmbeddingBag(20000 + 7919 * (i % 9), 128, mode="sum") for i in range(size)])
    bottom = nn.Sequential(
        nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()
    )
    pairs = size * (size + 1) // 2
    top = nn.Sequential(nn.Linear(128 + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
    dense, labels = torch.randn(batch, 13), torch.randint(0, 2, (batch,)).to(torch.get_default_dtype())
    ids = [torch.randint(0, 20000, (batch, 1 + i % 4)) for i in range(size)]
    lower = torch.tril_indices(size + 1, size + 1, -1)

    def call() -> Any:
        x = bottom(dense)
        vectors = torch.stack([x, *(t(i) for t, i in zip(tables, ids, strict=True))], 1)
        products = vectors @ vectors.transpose(1, 2)
        output = top(torch.cat([x, products[:, lower[0], lower[1]]], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(output, labels) if row.mode == "train" else output.sigmoid()

    return nn.ModuleList([tables, bottom, top]), call


def rnn(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    cells = getattr(nn, row.spec["cell"])(650, 650, 2, batch_first=True, dropout=0.5)
    table, head = nn.Embedding(33278, 650), nn.Linear(650, 33278)
    ids = torch.randint(0, 33278, (batch, size))

    def call() -> Any:
        hidden, _ = cells(F.dropout(table(ids), 0.5, row.mode == "train"))
        if row.mode == "train":
            return F.nll_loss(head(hidden).flatten(0, 1).log_softmax(-1), ids.flatten())
        return head(hidden[:, -1]).softmax(-1)

    return nn.ModuleList([cells, table, head]), call


def lstm_cells(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A recurrence written out by hand, with layer norm on the gates."""
    import torch

    enter, inner, norm = nn.Linear(512, 2048), nn.Linear(512, 2048, bias=False), nn.LayerNorm(2048)
    x = torch.randn(batch, size, 512)

    def call() -> Any:
        h = c = x.new_zeros(batch, 512)
        outputs = []
        for t in range(size):
            i, f, g, o = norm(enter(x[:, t]) + inner(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1)

    return nn.ModuleList([enter, inner, norm]), call


def pointnet(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    layers: list[Any] = []
    for given, out in ((3, 64), (64, 128), (128, 1024)):
        layers += [nn.Conv1d(given, out, 1), nn.BatchNorm1d(out), nn.ReLU()]
    net, head = (
        nn.Sequential(*layers),
        nn.Sequential(nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 40)),
    )
    x, labels = torch.randn(batch, 3, size), torch.randint(0, 40, (batch,))
    return nn.ModuleList([net, head]), lambda: F.cross_entropy(head(net(x).amax(-1)), labels, label_smoothing=0.1)


def nerf(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Positional encoding, an MLP, and colours composed along each ray by a cumulative product."""
    import torch

    net = nn.Sequential(nn.Linear(63, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    points, target, steps = torch.randn(batch, size, 3), torch.rand(batch, 3), torch.rand(batch, size)
    scales = 2.0 ** torch.arange(10)

    def call() -> Any:
        angle = (points[..., None] * scales).flatten(-2)
        output = net(torch.cat([points, angle.sin(), angle.cos()], -1))
        alpha = 1.0 - torch.exp(-F.relu(output[..., 3]) * steps)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        colour = ((alpha * through)[..., None] * output[..., :3].sigmoid()).sum(1)
        return F.mse_loss(colour, target)

    return net, call


def wavenet(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    dilated = nn.ModuleList([nn.Conv1d(64, 128, 2, dilation=2**i) for i in range(4)])
    joins = nn.ModuleList([nn.Conv1d(64, 64, 1) for _ in range(4)])
    x = torch.randn(batch, 64, size)

    def call() -> Any:
        h, total = x, torch.zeros_like(x)
        for i, (conv, join) in enumerate(zip(dilated, joins, strict=True)):
            a, b = conv(F.pad(h, (2**i, 0))).chunk(2, 1)
            part = join(a.tanh() * b.sigmoid())
            total, h = total + part, h + part
        return F.leaky_relu(total, 0.2)

    return nn.ModuleList([dilated, joins]), call


def vqvae(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    enter = nn.Sequential(nn.Conv2d(3, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 4, 2, 1), nn.BatchNorm2d(256))
    leave = nn.Sequential(nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(128, 3, 4, 2, 1))
    table = nn.Embedding(1024, 256)
    x = torch.randn(batch, 3, size, size)

    def call() -> Any:
        z = enter(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, 256)
        distance = flat.square().sum(1, keepdim=True) - 2.0 * flat @ table.weight.t() + table.weight.square().sum(1)
        chosen = table(distance.argmin(1)).view(batch, size // 4, size // 4, 256).permute(0, 3, 1, 2)
        loss = F.mse_loss(chosen, z.detach()) + 0.25 * F.mse_loss(z, chosen.detach())
        return loss + F.smooth_l1_loss(leave(z + (chosen - z).detach()), x)

    return nn.ModuleList([enter, leave, table]), call


def mlp(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    net = nn.Sequential(
        nn.Linear(size, 2 * size),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.RMSNorm(2 * size),
        nn.Linear(2 * size, size),
        nn.Softplus(),
    )
    x = torch.randn(batch, size)
    return net, lambda: F.kl_div(net(x).float().log_softmax(-1), x.float().softmax(-1), reduction="batchmean")


def fftconv(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A long convolution by FFT with gates, as state space models use it."""
    import torch

    width = 768
    enter, leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
    short = nn.Conv1d(3 * width, 3 * width, 3, padding=2, groups=3 * width)
    x, filters, bias = torch.randn(batch, size, width), torch.randn(width, size), torch.randn(width)

    def call() -> Any:
        u = short(enter(x).transpose(1, 2))[..., :size]
        a, b, v = u.chunk(3, 1)
        v = v * a
        y = torch.fft.irfft(torch.fft.rfft(v, n=2 * size) * torch.fft.rfft(filters, n=2 * size), n=2 * size)[..., :size]
        return leave(((y + v * bias[:, None]) * b).transpose(1, 2))

    return nn.ModuleList([enter, leave, short]), call


def retention(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Attention with a decay in the place of the softmax, group norm on the heads, a gate."""
    import torch

    width, heads = 1024, 8
    qkv, gate, out = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)
    norm = nn.GroupNorm(heads, width)
    x = torch.randn(batch, size, width)
    gamma = 1.0 - 2.0 ** (-5.0 - torch.arange(heads).float())
    places = torch.arange(size)

    def call() -> Any:
        q, k, v = qkv(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        apart = places[:, None] - places
        decay = torch.where(apart >= 0, gamma[:, None, None] ** apart.clamp(min=0), 0.0).to(x.dtype)
        h = ((q @ k.transpose(-1, -2)) * (width // heads) ** -0.5 * decay) @ v
        h = norm(h.transpose(1, 2).reshape(-1, width)).view(batch, size, width)
        return noise_loss(F, out(F.silu(gate(x)) * h), row)

    return nn.ModuleList([qkv, gate, out, norm]), call


def int8_linear(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Rows quantised to 8 bits by their largest value, and a weight of 8 bits brought back by its scale."""
    import torch

    weight = torch.randint(-127, 128, (2 * size, size), dtype=torch.int8)
    scale = torch.rand(2 * size, 1)
    x = torch.randn(batch, size)

    def call() -> Any:
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127.0
        rows = (x / step).round().clamp(-128, 127).to(torch.int8)
        return (rows.to(x.dtype) * step) @ (weight.to(x.dtype) * scale).t()

    return nn.Module(), call


def contrastive(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    net = nn.Sequential(nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, size))
    a, b, labels = torch.randn(batch, 2048), torch.randn(batch, 2048), torch.arange(batch)

    def call() -> Any:
        one, two = F.normalize(net(a), dim=-1), F.normalize(net(b), dim=-1)
        scores = one @ two.t() / 0.07
        loss = F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)
        return loss + F.triplet_margin_loss(one, two, two.roll(1, 0), margin=0.3)

    return net, call


def super_resolution(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch

    net = nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.PReLU(64), nn.Conv2d(64, 64, 3, padding=1), nn.InstanceNorm2d(64, affine=True),
        nn.PReLU(64), nn.Conv2d(64, 48, 3, padding=1), nn.PixelShuffle(4), nn.Hardtanh(0.0, 1.0),
    )  # fmt: skip
    x = torch.randn(batch, 3, size, size)
    return net, lambda: net(x)


def discriminator(nn: Any, F: Any, row: Row, batch: int, size: int) -> tuple[Any, Call]:
    import torch
    from torch.nn.utils import parametrizations

    layers: list[Any] = []
    for given, out in ((3, 64), (64, 128), (128, 256)):
        layers += [
            parametrizations.spectral_norm(nn.Conv2d(given, out, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.AvgPool2d(3, 1, 1),
        ]
    net = nn.Sequential(*layers, nn.Conv2d(256, 1, 4))
    x, y = torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size)
    return net, lambda: F.relu(1.0 - net(x)).mean() + F.relu(1.0 + net(y)).mean()


MAKERS: dict[str, Callable[[Row, Place], Callable[[], Made]]] = {
    "transformers": make_transformers, "torchvision": make_torchvision, "timm": make_timm, "graph": make_graph,
} | {
    f.__name__: make_plain(f)
    for f in (
        unet, dit, vae_decoder, dlrm, rnn, lstm_cells, pointnet, nerf, wavenet, vqvae, mlp, fftconv, retention,
        int8_linear, contrastive, super_resolution, discriminator,
    )
}  # fmt: skip


# Steps


def step_of(row: Row, made: Made, device: str) -> Call:
    """What is recorded: one forward, or one whole training step."""
    import torch

    def amp() -> Any:
        return torch.autocast(device, torch.bfloat16) if row.dtype == "autocast" else contextlib.nullcontext()

    if row.mode != "train":
        made.model.eval()

        def infer() -> None:
            with torch.no_grad(), amp():
                made.call()

        return infer
    made.model.train()
    parameters = [p for p in made.model.parameters() if p.requires_grad]
    optimizer = optimizer_of(row.optimizer, parameters)

    def train() -> None:
        with amp():
            loss = made.call()
        loss.backward()
        optimizer()
        for p in parameters:
            p.grad = None

    return train


def optimizer_of(name: str, parameters: Sequence[Any]) -> Call:
    import torch

    if name == "lion":
        return lion(parameters)
    makers: dict[str, Callable[[], Any]] = {
        "adamw": lambda: torch.optim.AdamW(parameters, 1e-4, weight_decay=0.1),
        "adamw_fused": lambda: torch.optim.AdamW(parameters, 1e-4, weight_decay=0.1, fused=True),
        "sgd": lambda: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-4),
    }
    return makers[name]().step  # type: ignore[no-any-return]


def lion(parameters: Sequence[Any]) -> Call:
    """By hand, one parameter at a time."""
    import torch

    moments = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step() -> None:
        for p, m in zip(parameters, moments, strict=True):
            if p.grad is None:
                continue
            p.mul_(1.0 - 1e-4 * 0.1)
            p.add_(torch.sign(m * 0.9 + p.grad * 0.1), alpha=-1e-4)
            m.mul_(0.99).add_(p.grad, alpha=0.01)

    return step


# Recording, in a child of its own


def name_modules() -> None:
    """Every module's forward is an annotation, which `with_modules` turns into the frames that a recording with stacks
    has: for a few microseconds a module instead of some for every line of Python."""
    import torch
    from torch.nn.modules import module as modules

    names: dict[int, str] = {}
    counts: dict[str, int] = {}
    opened: list[Any] = []

    def enter(module: Any, _: Any) -> None:
        if id(module) not in names:
            kind = type(module).__name__
            names[id(module)] = f"{MODULE_PREFIX}{kind}_{counts.get(kind, 0)}"
            counts[kind] = counts.get(kind, 0) + 1
        opened.append(torch.profiler.record_function(names[id(module)]))
        opened[-1].__enter__()

    def leave(*_: Any) -> None:
        if opened:
            opened.pop().__exit__(None, None, None)

    modules.register_module_forward_pre_hook(enter)
    modules.register_module_forward_hook(leave, always_call=True)


def with_modules(body: dict[str, Any]) -> dict[str, Any]:
    """Annotations of modules become frames on the host and go from the GPU's side."""
    kept = []
    for event in body["traceEvents"]:
        if str(event.get("name", "")).startswith(MODULE_PREFIX):
            if event.get("cat") == "gpu_user_annotation":
                continue
            event = event | {"cat": "python_function"}
        kept.append(event)
    return body | {"traceEvents": kept}


def record(row: Row, place: Place, folder: Path, tell: Callable[[str], None]) -> None:
    """Writes folder/NAME.json.gz and .et.json.gz. tell(state) returns when the next state may begin."""
    import torch
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

    on_gpu = place.device != "cpu"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    torch.manual_seed(SEED)
    build = MAKERS[row.maker](row, place)
    if on_gpu:  # the context, the profiler's library and cuBLAS take a second or two: not while another records
        with profile(activities=kinds):
            one = torch.ones(64, 64, device=place.device)
            one.mm(one)
        wait()
    tell("ready")
    made = build()
    step = step_of(row, made, place.device)
    name_modules()
    execution, trace = folder / f"{row.name}.et.json", folder / f"{row.name}.json"
    observer = ExecutionTraceObserver().register_callback(str(execution))
    plan = schedule(wait=0, warmup=1, active=1, repeat=1)
    session = profile(activities=kinds, record_shapes=True, schedule=plan, execution_trace_observer=observer)
    session.start()
    step()
    wait()
    tell("built")
    session.step()
    step()
    wait()
    session.stop()
    observer.unregister_callback()  # writes the end of its file
    tell("recorded")
    session.export_chrome_trace(str(trace))
    body = with_modules(json.loads(trace.read_bytes()))
    about = {"name": row.name, "maker": row.maker, "mode": row.mode, "dtype": row.dtype, "batch": row.batch}
    about |= {"size": row.size, "attention": row.attention, "model": row.spec.get("model") or row.spec.get("layer", "")}
    body["corpus"] = about
    with gzip.open(folder / f"{row.name}.json.gz", "wt", compresslevel=6) as out:
        json.dump(body, out, separators=(",", ":"))
    with gzip.open(folder / f"{row.name}.et.json.gz", "wb", compresslevel=6) as packed:
        packed.write(execution.read_bytes())
    trace.unlink()
    execution.unlink()


def child(row: Row, place: Place, folder: Path, pipe: Any) -> None:
    """States go through the pipe; after "ready" and "built" it waits for leave to go on."""
    os.setpgid(0, 0)
    warnings.simplefilter("ignore")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    state = "starting"

    def tell(reached: str) -> None:
        nonlocal state
        state = reached
        pipe.send((reached, ""))
        if reached in ("ready", "built"):
            pipe.recv()

    try:
        import torch

        torch.set_num_threads(1 if place.device != "cpu" else 2)
        record(row, place, folder, tell)
        pipe.send(("done", ""))
    except BaseException as fault:  # whatever a row does, the others go on
        where = traceback.extract_tb(fault.__traceback__)[-1]
        error = f"{type(fault).__name__}: {str(fault)[:500]} ({Path(where.filename).name}:{where.lineno})"
        with contextlib.suppress(OSError):
            pipe.send(("failed", f"after {state}: {error}"))
    os._exit(0)


# The parent: who may build, who may record


@dataclass
class Running:
    row: Row
    process: Any
    pipe: Any
    started: float
    state: str = "starting"
    entered: float = 0.0
    shared: bool = False


STATE_SECONDS = {"starting": 60.0, "ready": 90.0, "building": 30.0, "built": 90.0, "recording": 15.0, "recorded": 30.0}
PATIENCE_S = 8.0
"""A recording starts beside a slow builder after this long, and the report says so."""


class Parent:
    """Starts children and gives leave: several build at a time, one records, and while it records nobody builds."""

    def __init__(self, rows: Sequence[Row], place: Place, folder: Path, seconds: float, workers: int) -> None:
        self.waiting = in_order(rows)
        self.place, self.folder, self.workers = place, folder, workers
        self.builders = min(8, workers)
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.running: list[Running] = []
        self.report: list[dict[str, Any]] = []
        method = "fork" if forked_children_reach(place.device) else "spawn"
        self.context: Any = multiprocessing.get_context(method)
        print(f"children by {method}", flush=True)

    def run(self) -> None:
        while self.running or (self.waiting and time.monotonic() < self.end - 8):
            while self.waiting and len(self.running) < self.workers and time.monotonic() < self.end - 8:
                self.start(self.waiting.pop(0))
            self.listen()
            self.give_leave()
            self.stop_late()
        self.report += [{"name": r.name, "state": "not started"} for r in self.waiting]

    def start(self, row: Row) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=child, args=(row, self.place, self.folder, theirs))
        process.start()
        theirs.close()
        now = time.monotonic()
        self.running.append(Running(row, process, ours, now, entered=now))

    def listen(self) -> None:
        pipes = {r.pipe: r for r in self.running}
        for pipe in multiprocessing.connection.wait(list(pipes), timeout=0.05):
            item = pipes[pipe]  # type: ignore[index]
            try:
                state, error = item.pipe.recv()
            except (EOFError, OSError):
                state, error = "failed", f"died in state {item.state}"
            item.state, item.entered = state, time.monotonic()
            if state in ("done", "failed"):
                self.close(item, state, error)

    def close(self, item: Running, state: str, error: str) -> None:
        item.process.join(1.0)
        if item.process.is_alive():
            item.process.kill()
        self.running.remove(item)
        took = time.monotonic() - item.started
        line = {"name": item.row.name, "state": state, "error": error, "seconds": round(took, 1), "shared": item.shared}
        self.report.append(line)
        print(f"{time.monotonic() - self.begin:6.1f} s  {item.row.name}: {state} {error}", flush=True)

    def give_leave(self) -> None:
        by = {s: [r for r in self.running if r.state == s] for s in ("ready", "building", "built", "recording")}
        if by["recording"]:
            return
        now = time.monotonic()
        late = by["building"] and now - min(r.entered for r in by["building"]) > PATIENCE_S
        if by["built"] and (not by["building"] or late):
            self.go(by["built"][0], "recording", shared=bool(by["building"]))
        elif not by["built"]:
            for item in by["ready"][: self.builders - len(by["building"])]:
                self.go(item, "building")

    def go(self, item: Running, state: str, shared: bool = False) -> None:
        item.state, item.entered, item.shared = state, time.monotonic(), shared
        with contextlib.suppress(OSError):
            item.pipe.send(state)

    def stop_late(self) -> None:
        now = time.monotonic()
        for item in list(self.running):
            if now - item.entered > STATE_SECONDS[item.state] or now > self.end:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(item.process.pid, signal.SIGKILL)
                self.close(item, "failed", f"too long in state {item.state}")


def forked_children_reach(device: str) -> bool:
    """Whether a forked child can use the device: not where an import has started the driver in this process."""
    if device == "cpu":
        return True
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def probe() -> None:
        import torch

        try:
            torch.ones(1, device=device).sum().item()
            theirs.send(True)
        except Exception:
            theirs.send(False)
        os._exit(0)

    process = context.Process(target=probe)
    process.start()
    answer = bool(ours.recv()) if ours.poll(30.0) else False
    process.join(5.0)
    return answer


def import_all() -> None:
    """Once in the parent, so that its forks have them. A library that is absent costs its rows only."""
    for name in ("torch", "torch.profiler", "torchvision", "transformers", "transformers.modeling_utils", "timm",
                 "torch_geometric.nn", "transformers.masking_utils", "transformers.models.llama.modeling_llama"):  # fmt: skip
        try:
            __import__(name)
        except Exception as fault:
            print(f"no {name}: {fault}", flush=True)


def pack(folder: Path, out: Path) -> Iterator[str]:
    """The traces of the folder in tars of at most MAX_TAR_BYTES; gives the names of what no longer fitted."""
    stems = sorted(p.name.removesuffix(".et.json.gz") for p in folder.glob("*.et.json.gz"))
    stems = [s for s in stems if (folder / f"{s}.json.gz").exists()]
    number, used = 0, 0
    target = tarfile.open(out / "traces_0.tar", "w")
    for stem in sorted(stems, key=lambda s: hashlib.sha256(s.encode()).hexdigest()):
        files = [folder / f"{stem}.json.gz", folder / f"{stem}.et.json.gz"]
        need = sum(f.stat().st_size + 1024 for f in files)
        if used and used + need > MAX_TAR_BYTES:
            if number + 1 == MAX_TARS:
                yield stem
                continue
            target.close()
            number, used = number + 1, 0
            target = tarfile.open(out / f"traces_{number}.tar", "w")
        for file in files:
            target.add(file, file.name)
        used += need
    target.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Records traces of parts of real models.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0, help="of this machine's time, all in all")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a dry run")
    parser.add_argument("--tiny", action="store_true", help="narrow models and small batches, for a dry run")
    parser.add_argument("--workers", type=int, default=12, help="children alive at a time")
    parser.add_argument("--only", action="append", default=[], help="this row; may be given again")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    rows = [r for r in ROWS if not options.only or r.name in options.only]
    if options.list:
        for row in rows:
            print(f"{row.name}\t{row.maker}\t{row.mode}\t{row.dtype}\t{row.batch}x{row.size}\t{row.attention}")
        return 0
    if options.out is None:
        parser.error("--out is required")
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="traces_"))
    import_all()
    print(f"{time.monotonic() - begin:6.1f} s  imported", flush=True)
    left = options.seconds - (time.monotonic() - begin) - 6
    parent = Parent(rows, Place(options.device, options.tiny), folder, left, options.workers)
    parent.run()
    left_out = set(pack(folder, options.out))
    lines = [line | {"left_out": line["name"] in left_out} for line in parent.report]
    (options.out / "report.json").write_text(json.dumps(lines, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    done = sum(line["state"] == "done" for line in lines)
    print(
        f"{time.monotonic() - begin:6.1f} s  {done} of {len(rows)} rows recorded, {len(left_out)} left out", flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
