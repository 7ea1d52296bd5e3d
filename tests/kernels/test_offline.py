"""Kernels compile for GPUs that are not here, without spills, and with 16-byte accesses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.codegen.generated import generate
from kernels.codegen.text.source import Source, load
from kernels.ops.norm import forward as norms
from kernels.ops.norm import rms_norm
from kernels.ops.quantised import scaled_gemm
from kernels.ops.softmax import softmax
from kernels.tuning import Variant
from profiler.oracle.compiler.machine import Machine
from profiler.oracle.compiler.machine_code import CompileError, compile_for
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

TAIL = "z: bf16[8192, 16384]\nb: bf16[16384]\nmask: bf16[8192, 16384]\nz = z + b\nz = gelu(z)\ny = z * mask\nreturn y\n"
SOFTMAX = "x: bf16[16384, 4096]\ny = torch.softmax(x, -1)\nreturn y\n"
RMS = (
    "x: bf16[16384, 4096]\nw: bf16[4096]\nv = x.float().pow(2).mean(-1, keepdim=True)\n"
    "y = (x.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\nreturn y\n"
)
ELEMENTS = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "u8", "bool": "i1",
}  # fmt: skip
"""Triton's names of the element types that a region's inputs have."""

POINTERS = {"x_ptr": "*bf16", "y_ptr": "*bf16", "x_stride": "i32", "y_stride": "i32"}


@pytest.fixture(autouse=True)
def kernel_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONWORTHY_KERNEL_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def kernel_of(source: Source) -> Any:
    """The jit function of a generated kernel, without its autotuner."""
    return getattr(load(source), source.kernel).fn


def signature_of(source: Source) -> dict[str, str]:
    """Argument types of a generated kernel, by its parameter names in order."""
    function = kernel_of(source)
    found = {name: f"*{ELEMENTS[t]}" for name, t in zip(function.arg_names, source.arguments, strict=False)}
    return {**found, "seed": "i32"} if source.seeded else found


def compile_source(source: Source, target: str = "sm_90") -> tuple[Machine, ...]:
    """Every configuration of a generated kernel, compiled for a target. Raises CompileError."""
    if source.form == "empty":
        return ()
    function, signature = kernel_of(source), signature_of(source)
    return tuple(
        compile_for(function, signature, dict(constants), target, warps) for constants, warps in source.constants
    )


@pytest.mark.parametrize("text", [TAIL, SOFTMAX, RMS], ids=["tail", "softmax", "rms_norm"])
def test_generated_kernels_do_not_spill_and_load_whole_vectors(text: str) -> None:
    (source,) = generate(lower(parse(text))).sources
    compiled = compile_source(source, "sm_90")
    assert len(compiled) == len(source.constants)
    for item in compiled:
        assert item.spill_bytes == 0, item.constants
        assert item.registers is not None
        assert item.registers <= 128
        assert item.occupancy is not None
        assert item.occupancy >= 0.25
        loads = re.findall(r"LDG\.\S+", item.sass)
        assert loads
        assert not [load for load in loads if "16" in load.replace("128", "")], (item.constants, loads)
        assert any("128" in load for load in loads)


AROUND_CALLS = {
    "dequantised weight": "x: bf16[16, 1024]\nw: i8[4096, 1024]\ns: bf16[4096]\nreturn (x @ w.to(bf16).t()) * s\n",
    "product and softmax": "x: bf16[4096, 128]\nw: bf16[128, 64]\nreturn softmax((x @ w).float(), -1)\n",
    "counts": "i: i64[65536].below(8)\nreturn zeros(8, dtype=f32).index_add(0, i, ones(65536, dtype=f32))\n",
    "amax": "x: f32[4096, 64]\ni: i64[4096].below(99)\n"
    "return full((99, 64), float('-inf')).scatter_reduce(0, i[:, None].expand(-1, 64), x, 'amax')\n",
    "bags": "t: bf16[999, 64]\ni: i64[4096].below(999)\no: i64[65].offsets(4096)\n"
    "return F.embedding_bag(i, t, o[:-1], mode='max')\n",
    "8-bit floats": "x: f32[4096, 512]\ny = (x * 3).to(f8e4m3)\nreturn y, y.float() * 2, torch.round(x).to(i8)\n",
}


@pytest.mark.parametrize("name", AROUND_CALLS)
def test_kernels_around_scatters_and_products_compile_and_do_not_spill(name: str) -> None:
    (source,) = generate(lower(parse(AROUND_CALLS[name]))).sources
    function, signature = kernel_of(source), signature_of(source)
    constants, warps = source.constants[-1]
    item = compile_for(function, signature, dict(constants), "sm_90", warps)
    assert item.spill_bytes == 0
    if source.form == "product":
        assert re.search(r"HGMMA|HMMA", item.sass)


ODD_NEIGHBOURS = {
    "of an outer row": "x: bf16[8, {n}, 129]\ns: f32[8]\nreturn softmax(x * s[:, None, None], 1)\n",
    "of a neighbour": "x: bf16[8, {n}, 129]\ns: f32[129]\nreturn softmax(x * s, 1)\n",
    "one number": "x: bf16[8, {n}, 129]\ns: f32[1]\nreturn (x * s).sum(1)\n",
    "all three": "x: bf16[8, {n}, 129]\ns: f32[8]\nt: f32[129]\nu: f32[1]\nv: f32[8, 1, 129]\n"
    "return ((x * s[:, None, None] + t) * u + v).var(1)\n",
    "of two outer dimensions": "x: bf16[4, 3, {n}, 129]\ns: f32[4]\nt: f32[3]\n"
    "return softmax(x * s[:, None, None, None] + t[:, None, None], 2)\n",
    "a condition": "x: bf16[8, {n}, 129]\ns: f32[8]\n"
    "return torch.where(s[:, None, None] > 0, x.float(), s[:, None, None]).sum(1)\n",
    "a place": "x: bf16[8, {n}, 129]\ns: f32[8]\nreturn (x * s[:, None, None]).argmax(1)\n",
    "by an index": "x: f32[8, {n}, 129]\ni: i64[8].below(99)\nt: f32[99]\nreturn (x * t[i][:, None, None]).sum(1)\n",
    "written as well": "x: f32[8, {n}, 129]\ns: f32[8]\ny = x * s[:, None, None]\nreturn y.sum(1), y + 1\n",
}
"""Reductions over an axis whose neighbours in memory are odd in number, with an operand of some of the rows."""


@pytest.mark.parametrize(("form", "length"), [("rows", 64), ("loop", 700)])
@pytest.mark.parametrize("name", ODD_NEIGHBOURS)
def test_a_row_of_odd_neighbours_compiles_with_an_operand_of_any_of_its_dimensions(
    name: str, form: str, length: int
) -> None:
    sources = generate(lower(parse(ODD_NEIGHBOURS[name].format(n=length)))).sources
    walked = [s for s in sources if "inner = " in s.text]
    assert form in {s.form for s in walked}
    for source in walked:
        function, signature = kernel_of(source), signature_of(source)
        constants, warps = source.constants[-1]
        assert compile_for(function, signature, dict(constants), "sm_90", warps).spill_bytes == 0


def test_a_generated_kernel_compiles_for_other_targets() -> None:
    (source,) = generate(lower(parse(SOFTMAX))).sources
    for target in ("sm_80", "sm_100"):
        assert {c.spill_bytes for c in compile_source(source, target)} == {0}
    amd = compile_source(source, "gfx942")
    assert all(c.registers and "s_endpgm" in c.texts["amdgcn"] for c in amd)


@pytest.mark.parametrize("columns", [4096, 65536])
def test_hand_written_kernels_do_not_spill(columns: int) -> None:
    variants = softmax.space(4096, columns, torch.bfloat16, True)
    variants += norms.space(4096, columns, torch.bfloat16, 2, norms.Form(weight=True))
    checked = 0
    for variant in variants:
        if variant.warps < 8 and columns == 4096:
            continue
        assert compiled(variant) == 0, variant
        checked += 1
    assert checked >= 4


def compiled(variant: Variant) -> int | None:
    names = variant.kernel.arg_names
    packed = variant.kernel in (softmax.softmax_packed, softmax.softmax_ahead, rms_norm.rms_norm_packed)
    types = {"rows": "i32", "zero": "i32", "eps": "fp32", "w_ptr": "*bf16", **POINTERS}
    types |= {**dict.fromkeys(("r_ptr", "b_ptr", "s_ptr"), "*bf16"), "mean_ptr": "*fp32", "rstd_ptr": "*fp32"}
    types |= {"r_stride": "i32", "sync_ptr": "*i64"}
    if packed:
        types |= dict.fromkeys(("x_ptr", "y_ptr", "w_ptr"), "*i32")
    signature = {n: types[n] for n in names if n in types}
    return compile_for(variant.kernel, signature, dict(variant.constants), "sm_90", variant.warps).spill_bytes


def test_a_kernel_that_does_not_compile_is_said() -> None:
    with pytest.raises(CompileError):
        compile_for(softmax.softmax_loop, POINTERS, {"N": 4096, "BLOCK": 1000, "LANE": 8, "STAGES": 1}, "sm_90")


@pytest.mark.parametrize(("blocks", "moved"), [(128, 128), (256, 128)])
def test_sums_of_f8_are_moved_after_128_whatever_a_tile_is(blocks: int, moved: int) -> None:
    """64 rows, so that the matrix units of sm_90 are those that keep 14 bits."""
    a, b = (torch.empty((n, 8192), dtype=torch.float8_e4m3fn, device="meta") for n in (64, 4096))
    variant = next(v for v in scaled_gemm.space(a, b.T, False, False) if (v["BM"], v["BK"]) == (64, blocks))
    item = scaled_gemm.build_of(variant, "f8")
    constants = dict(item.variant.constants)
    made = compile_for(
        variant.kernel, item.signature, constants, "sm_90", variant.warps, 2, divisible=item.divisible
    )  # fmt: skip
    assert set(re.findall(r"maxNumImpreciseAcc = (\d+)", made.texts["ttgir"])) == {str(moved)}
