"""What packages are imported as, called where they are installed from, and how. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

DISTRIBUTIONS: Mapping[str, str] = {
    "torch": "torch",
    "triton": "triton",
    "liger_kernel": "liger-kernel",
    "quack": "quack-kernels",
    "flag_gems": "flag-gems",
    "flashinfer": "flashinfer-python",
    "flash_attn": "flash-attn",
    "flash_attn.cute": "flash-attn-4",
    "flash_attn_interface": "flash-attn-3",
    "helion": "helion",
    "sageattention": "sageattention",
    "unsloth": "unsloth",
    "torchao": "torchao",
    "gemlite": "gemlite",
    "vllm": "vllm",
    "fla": "flash-linear-attention",
    "mamba_ssm": "mamba-ssm",
    "causal_conv1d": "causal-conv1d",
    "cut_cross_entropy": "cut-cross-entropy",
    "fbgemm_gpu": "fbgemm-gpu",
    "transformer_engine": "transformer-engine",
    "natten": "natten",
    "xformers": "xformers",
    "apex": "apex",
}
"""Import name -> the distribution's: every package that an entry may ask for."""

_OTHERWISE: Mapping[str, str] = {
    "torch": "pip install -U torch",
    "flash_attn": "pip install flash-attn --no-build-isolation",
    "flash_attn.cute": "pip install --pre flash-attn-4",
    "flash_attn_interface": "build hopper/ of Dao-AILab/flash-attention",
    "mamba_ssm": "pip install mamba-ssm --no-build-isolation",
    "causal_conv1d": "pip install causal-conv1d --no-build-isolation",
    "transformer_engine": "pip install transformer-engine[pytorch]",
}


def install_command(package: str, least: str = "") -> str:
    """What gets the package of this import name; least: the version that has the call, where one is here already."""
    if least:
        return f'pip install -U "{DISTRIBUTIONS[package]}>={least}"'
    return _OTHERWISE.get(package) or f"pip install {DISTRIBUTIONS[package]}"
