"""What is recorded: one row a model in one use. A table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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
    """A row of torchvision."""
    return Row(f"tv_{name}", "torchvision", mode, dtype, batch, size, {"model": model, "shape": shape}, **kw)


def tm(model: str, mode: str, dtype: str, batch: int, size: int = 224, **kw: Any) -> Row:
    """A row of timm."""
    return Row(f"timm_{model}", "timm", mode, dtype, batch, size, {"model": model}, **kw)


def graph(name: str, mode: str, dtype: str, nodes: int, degree: int, width: int, **kw: Any) -> Row:
    """A row of torch_geometric; width is of its layers."""
    return Row(f"pyg_{name}", "graph", mode, dtype, degree, nodes, {"layer": name, "width": width, **kw})


def plain(name: str, mode: str, dtype: str, batch: int, size: int, optimizer: str = "adamw", **spec: Any) -> Row:
    """A row of a model written here."""
    return Row(name, spec.pop("maker", name), mode, dtype, batch, size, spec, optimizer=optimizer)


LLAMA8: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
QWEN3_8: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}

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
    hf("nystromformer_infer", "NystromformerForMaskedLM", "infer", "f32", 4, 512, PADDED, "",
       max_position_embeddings=512),
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
