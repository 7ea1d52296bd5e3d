"""Reads the signatures of other packages' functions that adapters call, from their published sources, by ast.

    python -m tools.records.record_contracts --sources DIR      DIR holds unpacked wheels or source archives;
                                                                of a checkout, PKG-INFO with its name and commit

Nothing of a package is imported or run. Writes tools/records/contracts.json; what DIR does not hold stays as it was.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

RECORD = Path(__file__).with_name("contracts.json")


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """kind: as in inspect.Parameter. required: it has no default."""

    name: str
    kind: str
    required: bool


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function as its package publishes it. file: inside of the package's archive."""

    package: str
    version: str
    file: str
    parameters: tuple[Parameter, ...]


TARGETS: Mapping[str, tuple[str, str, str]] = {
    "flashinfer.rmsnorm": ("flashinfer-python", "flashinfer/norm/__init__.py", "rmsnorm"),
    "flashinfer.fused_add_rmsnorm": ("flashinfer-python", "flashinfer/norm/__init__.py", "fused_add_rmsnorm"),
    "flashinfer.silu_and_mul": ("flashinfer-python", "flashinfer/activation.py", "silu_and_mul"),
    "flashinfer.gelu_tanh_and_mul": ("flashinfer-python", "flashinfer/activation.py", "gelu_tanh_and_mul"),
    "flashinfer.mm_fp4": ("flashinfer-python", "flashinfer/gemm/gemm_base.py", "mm_fp4"),
    "flashinfer.mm_mxfp8": ("flashinfer-python", "flashinfer/gemm/gemm_base.py", "mm_mxfp8"),
    "flashinfer.fused_moe.cutlass_fused_moe": (
        "flashinfer-python", "flashinfer/fused_moe/core.py", "cutlass_fused_moe",
    ),
    "quack.rmsnorm.rmsnorm": ("quack-kernels", "quack/rmsnorm.py", "rmsnorm"),
    "quack.rmsnorm.layernorm_fwd": ("quack-kernels", "quack/rmsnorm.py", "layernorm_fwd"),
    "quack.softmax.softmax": ("quack-kernels", "quack/softmax.py", "softmax"),
    "quack.cross_entropy.cross_entropy": ("quack-kernels", "quack/cross_entropy.py", "cross_entropy"),
    "quack.topk.topk": ("quack-kernels", "quack/topk.py", "topk"),
    "quack.gemm_interface.gemm_act": ("quack-kernels", "quack/gemm_interface.py", "gemm_act"),
    "quack.linear_cross_entropy.chunked_linear_cross_entropy": (
        "quack-kernels", "quack/linear_cross_entropy.py", "chunked_linear_cross_entropy",
    ),
    "flashinfer.sampling.top_p_sampling_from_probs": (
        "flashinfer-python", "flashinfer/sampling.py", "top_p_sampling_from_probs",
    ),
    "sageattention.sageattn": ("sageattention", "sageattention/core.py", "sageattn"),
    "unsloth.kernels.rms_layernorm.Fast_RMS_Layernorm.apply": (
        "unsloth", "unsloth/kernels/rms_layernorm.py", "Fast_RMS_Layernorm.forward",
    ),
    "unsloth.kernels.swiglu.swiglu_fg_kernel": ("unsloth", "unsloth/kernels/swiglu.py", "swiglu_fg_kernel"),
    "unsloth.kernels.geglu.geglu_approx_forward_kernel": (
        "unsloth", "unsloth/kernels/geglu.py", "geglu_approx_forward_kernel",
    ),
    "vllm._custom_ops.rms_norm": ("vllm", "vllm/_custom_ops.py", "rms_norm"),
    "vllm._custom_ops.topk_softmax": ("vllm", "vllm/_custom_ops.py", "topk_softmax"),
    "vllm._custom_ops.marlin_gemm": ("vllm", "vllm/_custom_ops.py", "marlin_gemm"),
    "torch.ops.torchao.mx_fp8_bf16": ("torchao", "torchao/ops.py", "meta_mx_fp8_bf16"),
    "fla.ops.linear_attn.chunk_linear_attn": ("fla-core", "fla/ops/linear_attn/chunk.py", "chunk_linear_attn"),
    "transformer_engine.pytorch.moe_permute": (
        "transformer-engine", "transformer_engine/pytorch/permutation.py", "moe_permute",
    ),
    "flash_attn.flash_attn_func": ("flash-attn", "flash_attn/flash_attn_interface.py", "flash_attn_func"),
    "flash_attn.ops.triton.cross_entropy.cross_entropy_loss": (
        "flash-attn", "flash_attn/ops/triton/cross_entropy.py", "cross_entropy_loss",
    ),
    "flash_attn_interface.flash_attn_func": ("flash-attn-3", "flash_attn_interface.py", "flash_attn_func"),
    "flash_attn.cute.flash_attn_func": ("flash-attn-4", "flash_attn/cute/interface.py", "flash_attn_func"),
    "causal_conv1d.causal_conv1d_fn": (
        "causal-conv1d", "causal_conv1d/causal_conv1d_interface.py", "causal_conv1d_fn",
    ),
    "cut_cross_entropy.linear_cross_entropy": (
        "cut-cross-entropy", "cut_cross_entropy/linear_cross_entropy.py", "linear_cross_entropy",
    ),
    "flag_gems.gelu_and_mul": ("flag-gems", "flag_gems/fused/gelu_and_mul.py", "gelu_and_mul"),
    "flag_gems.group_norm": ("flag-gems", "flag_gems/ops/groupnorm.py", "group_norm"),
    "kernels.get_kernel": ("kernels", "kernels/load.py", "get_kernel"),
}  # fmt: skip
"""The dotted name under which it is called -> distribution, file, name inside of the file."""


def main(arguments: list[str]) -> int:
    """Writes the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder of unpacked archives")
    sources = parser.parse_args(arguments).sources
    recorded = contracts() if RECORD.exists() else {}
    for dotted, (package, file, name) in TARGETS.items():
        path = next(iter(sorted(sources.glob(f"*/{file}"))), None)
        if path is None:
            print(f"{dotted}: no {file} in {sources}", file=sys.stderr)
            continue
        function = function_in(path.read_text(encoding="utf-8"), name)
        root = path.parents[file.count("/")]
        recorded[dotted] = Contract(package, _version(root, package), file, parameters_of(function, "." in name))
    kept = {dotted: recorded[dotted] for dotted in TARGETS if dotted in recorded}
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return 0


def contracts() -> dict[str, Contract]:
    """Dotted name -> the recorded signature."""
    return msgspec.json.decode(RECORD.read_bytes(), type=dict[str, Contract])


def function_in(text: str, name: str) -> ast.FunctionDef:
    """A module's function, or a class's method. The last of several: those before are overloads."""
    body: list[ast.stmt] = ast.parse(text).body
    *classes, last = name.split(".")
    for part in classes:
        body = next(n.body for n in body if isinstance(n, ast.ClassDef) and n.name == part)
    functions = [n for n in _flat(body) if isinstance(n, ast.FunctionDef) and n.name == last]
    if not functions:
        raise LookupError(f"no function {name}")
    return functions[-1]


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with those of the branches of `if` and `try` beside them."""
    flat: list[ast.stmt] = []
    for node in body:
        flat.append(node)
        if isinstance(node, ast.If | ast.Try):
            flat += _flat([*node.body, *node.orelse])
    return flat


def parameters_of(function: ast.FunctionDef, of_class: bool) -> tuple[Parameter, ...]:
    """In order. of_class: the first is the context that autograd passes itself."""
    a = function.args
    placed = [*a.posonlyargs, *a.args]
    required = len(placed) - len(a.defaults)
    parameters = [
        Parameter(p.arg, "POSITIONAL_ONLY" if i < len(a.posonlyargs) else "POSITIONAL_OR_KEYWORD", i < required)
        for i, p in enumerate(placed)
    ]
    parameters += [Parameter(a.vararg.arg, "VAR_POSITIONAL", False)] if a.vararg else []
    parameters += [
        Parameter(p.arg, "KEYWORD_ONLY", default is None)
        for p, default in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    parameters += [Parameter(a.kwarg.arg, "VAR_KEYWORD", False)] if a.kwarg else []
    return tuple(parameters[1:] if of_class else parameters)


def _version(root: Path, package: str) -> str:
    """Of the archive's own metadata."""
    wanted = package.replace("-", "_").lower()
    for metadata in (*root.glob("*.dist-info/METADATA"), *root.glob("PKG-INFO")):
        said = dict(
            line.split(": ", 1) for line in metadata.read_text(encoding="utf-8").splitlines()[:12] if ": " in line
        )
        if said.get("Name", "").replace("-", "_").lower() == wanted:
            return said["Version"]
    raise LookupError(f"{root} does not say which version of {package} it is")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
