"""mxfp8, mxfp4 and nvfp4: read, refused where torch has nothing for them, counted and covered."""

from __future__ import annotations

import pytest
import torch

from kernels.codegen.generated import attempt
from kernels.host import Host
from kernels.libraries.calls.block_scales import padded_scales
from kernels.libraries.covers import coverage
from kernels.measure.candidate.inputs import one_input
from kernels.measure.candidate.reference import NoReferenceError, widened
from kernels.measure.stats import least_possible_us
from profiler.hardware import find_device
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.kernels.libraries.hosts import B200, H200, gpu

PRODUCT = "return torch._scaled_mm(a, b.t(), sa, sb, out_dtype=torch.bfloat16)\n"
MXFP8 = f"a: f8e4m3[256, 1024]\nb: f8e4m3[512, 1024]\nsa: f8e8m0[8192]\nsb: f8e8m0[16384]\n{PRODUCT}"
MXFP4 = f"a: f4e2m1x2[256, 512]\nb: f4e2m1x2[512, 512]\nsa: f8e8m0[8192]\nsb: f8e8m0[16384]\n{PRODUCT}"
NVFP4 = f"a: f4e2m1x2[256, 512]\nb: f4e2m1x2[512, 512]\nsa: f8e4m3[16384]\nsb: f8e4m3[32768]\n{PRODUCT}"
ROW_SCALES = f"a: f8e4m3[256, 1024]\nb: f8e4m3[512, 1024]\nsa: f32[256, 1]\nsb: f32[1, 512]\n{PRODUCT}"


def covering(text: str, host: Host) -> dict[str, bool]:
    """Call -> whether it covers the region on this host."""
    graph = lower(parse(text))
    return {c.candidate.removeprefix("library:"): c.covers for c in coverage(graph, match(graph), host)}


@pytest.mark.parametrize(("text", "in_bytes"), [(MXFP8, 811_008), (MXFP4, 417_792), (NVFP4, 442_368)])
def test_half_a_byte_a_number_and_all_of_the_multiply_adds(text: str, in_bytes: int) -> None:
    counted = cost(lower(parse(text)))
    assert counted.gemm_flops == 2 * 256 * 1024 * 512  # the same product in each format
    assert counted.ideal.bytes_read == in_bytes
    assert counted.ideal.bytes_written == 256 * 512 * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("x: bf16[8, 16]\nreturn x.to(f4e2m1x2)\n", "no cast to f4"),
     ("x: f4e2m1x2[8, 16]\nreturn x.float()\n", "does not take f4"),
     ("x: f4e2m1x2[8, 16]\nreturn x + x\n", "does not take f4"),
     ("x: f4e2m1x2[8, 16]\nreturn x.clone()\n", "clone does not take f4"),
     ("x: bf16[8, 16]\nreturn x, torch.zeros(8, 16, dtype=f4e2m1x2)\n", "does not make f4"),
     ("x: f8e8m0[8, 16]\nreturn x * x\n", "does not take fp8"),
     ("x: f4e2m1x2[8, 16].requires_grad\nreturn x.t()\n", "cannot require a gradient")],
)  # fmt: skip
def test_what_torch_has_nothing_for_is_refused(text: str, said: str) -> None:
    with pytest.raises(RegionError, match=said):
        lower(parse(text))


def test_a_scale_can_be_widened() -> None:
    graph = lower(parse("s: f8e8m0[8, 16]\nx: bf16[8, 16]\nreturn x * s.to(bf16)\n"))
    assert graph.output_tensors[0].dtype == "bf16"


def test_no_kernel_is_generated_that_triton_could_not_load() -> None:
    made = attempt(lower(parse("s: f8e8m0[8, 16]\nx: bf16[8, 16]\nreturn x * s.to(bf16)\n")))
    assert not made.text and "the dtype f8e8m0" in made.refused


def test_each_format_is_covered_by_its_own_calls() -> None:
    def named(text: str) -> dict[str, bool]:
        return covering(text, B200)

    torch_call = "torch.nn.functional.scaled_mm.mx"
    assert named(NVFP4)[torch_call] and named(NVFP4)["flashinfer.mm_fp4"] and not named(NVFP4)["flashinfer.mm_mxfp8"]
    assert not named(MXFP4)[torch_call] and named(MXFP4)["flashinfer.mm_fp4"]
    assert not named(MXFP4)["torchao.mx_fp8_bf16"]
    assert named(MXFP8)[torch_call] and named(MXFP8)["torchao.mx_fp8_bf16"] and not named(MXFP8)["flashinfer.mm_fp4"]
    assert torch_call not in named(ROW_SCALES), "one scale a row is the other call's"


def test_torch_has_mxfp4_on_amd_alone() -> None:
    torch_call = "torch.nn.functional.scaled_mm.mx"
    mi350, mi300 = (
        Host(f"AMD Instinct {name}", None, {}, B200.packages, B200.features) for name in ("MI350X", "MI300X")
    )
    assert covering(MXFP4, mi350)[torch_call]
    assert not covering(NVFP4, mi350)[torch_call] and not covering(MXFP4, mi300)[torch_call]


def test_torchao_s_product_is_built_for_one_architecture() -> None:
    on_workstation = covering(MXFP8, gpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 12, 0))
    assert not on_workstation["torchao.mx_fp8_bf16"] and on_workstation["flashinfer.mm_mxfp8"]


def test_one_packed_factor_and_one_that_is_not_are_refused() -> None:
    mixed = MXFP4.replace("b: f4e2m1x2[512, 512]", "b: f8e4m3[512, 512]")
    with pytest.raises(RegionError, match="both factors are packed, or neither"):
        lower(parse(mixed))


@pytest.mark.parametrize(("rows", "padded"), [(16, 128), (100, 128), (128, 128), (129, 256)])
def test_scales_keep_their_padded_rows(rows: int, padded: int) -> None:
    """As torch._scaled_mm takes them: whole blocks of 128 rows by 4 scales, however few rows are left."""
    text = MXFP4.replace("a: f4e2m1x2[256, 512]", f"a: f4e2m1x2[{rows}, 512]").replace(
        "sa: f8e8m0[8192]", f"sa: f8e8m0[{padded * 32}]"
    )
    scale = dict(lower(parse(text)).inputs)["sa"]
    assert padded_scales(torch.zeros(scale.shape, dtype=torch.float8_e8m0fnu), rows).shape == (padded, 32)


def test_hopper_has_no_block_formats() -> None:
    on_hopper = covering(NVFP4, H200)
    assert on_hopper and not any(on_hopper.values())


def test_inputs_are_drawn_and_have_no_float64() -> None:
    for item in parse(NVFP4.replace("f8e4m3[16384]", "f8e8m0[16384]")).inputs[:3]:
        drawn = one_input(item, {}, "cpu", 7)
        assert len(drawn.view(torch.uint8).unique()) > 4
        with pytest.raises(NoReferenceError):
            widened(drawn, torch.float64, False)


def test_a_time_that_f4_allows_is_not_called_impossible() -> None:
    b200 = find_device("B200")
    assert b200 is not None
    assert least_possible_us(0, 9e15, "f4e2m1x2", b200) == pytest.approx(1e6)
    assert least_possible_us(0, 9e15, "i8", b200) == pytest.approx(1e6)  # an unlisted type is held to the fastest
