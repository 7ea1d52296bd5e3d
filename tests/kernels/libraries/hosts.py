"""Hosts that the catalogue is asked on: given, never this one."""

from __future__ import annotations

from kernels.host import Host

PACKAGES = frozenset(
    """torch triton liger_kernel quack flag_gems flashinfer flash_attn flash_attn.cute flash_attn_interface torchao
    gemlite vllm fla mamba_ssm causal_conv1d cut_cross_entropy fbgemm_gpu transformer_engine natten""".split()
)
FEATURES = frozenset(
    """F.rms_norm F.grouped_mm F.scaled_mm F.linear_cross_entropy aten._addmm_activation aten._int_mm
    aten._weight_int4pack_mm aten._fused_adamw_ flex_attention varlen_attn associative_scan native.topk
    native.scatter_add""".split()
)


def gpu(name: str, *capability: int) -> Host:
    """A host with this GPU and every package."""
    return Host(name, (capability[0], capability[1]), {"torch": "2.13.0"}, PACKAGES, FEATURES)


H200 = gpu("NVIDIA H200", 9, 0)
A100 = gpu("NVIDIA A100", 8, 0)
B200 = gpu("NVIDIA B200", 10, 0)
L4 = gpu("NVIDIA L4", 8, 9)
P100 = gpu("Tesla P100-PCIE-16GB", 6, 0)
CPU = Host(None, None, {"torch": "2.13.0"}, PACKAGES, FEATURES)
BARE_H200 = Host("NVIDIA H200", (9, 0), {"torch": "2.13.0"}, frozenset({"torch", "triton"}), FEATURES)
