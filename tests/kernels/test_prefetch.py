"""What asks for the next row is in the machine code, after the loads of this row and before its stores."""

from __future__ import annotations

import re

import pytest
import torch

from kernels.ops.norm import forward as norms
from kernels.ops.norm.forward import Form
from kernels.ops.norm.rms_norm import SIGNATURE
from kernels.ops.softmax import softmax
from kernels.tuning import Variant
from profiler.oracle.compiler.machine_code import compile_for

STRIDES = ("rows", "x_stride", "r_stride", "y_stride")


def listing(variant: Variant, target: str) -> str:
    pairs = {"x_ptr": "*i32", "y_ptr": "*i32"} if variant.kernel is softmax.softmax_ahead else {}
    signature = {n: t for n, t in {**SIGNATURE, **pairs}.items() if n in variant.kernel.arg_names}
    divisible = [n for n in STRIDES if n in signature]
    made = compile_for(
        variant.kernel, signature, dict(variant.constants), target, variant.warps, divisible=divisible
    )  # fmt: skip
    if target == "sm_90":
        assert made.spill_bytes == 0
    return made.texts.get("sass", "") or made.texts["amdgcn"]


@pytest.mark.parametrize(("bulk", "instruction", "count"), [(True, "UBLKPF", 1), (False, "CCTL.E.PF2", 4)])
@pytest.mark.parametrize("kernel", ["rms_norm", "softmax"])
def test_the_next_row_is_asked_for_before_this_one_is_written(
    kernel: str, bulk: bool, instruction: str, count: int
) -> None:
    if kernel == "softmax":
        variant = softmax._ahead(32768, torch.bfloat16, 32, 4, bulk)
    else:
        variant = norms.pieces(32768, 2, torch.bfloat16, Form(), 32, 1, 4, bulk)
    matches = re.findall(r"LDG\.E\.EF\.128|STG\.E\.EF\.128|UBLKPF|CCTL\.E\.PF2", listing(variant, "sm_90"))
    assert matches == 8 * ["LDG.E.EF.128"] + count * [instruction] + 8 * ["STG.E.EF.128"]


def test_without_bulk_instructions_sectors_are_asked_for_and_without_any_nothing_is() -> None:
    variant = norms.pieces(32768, 2, torch.bfloat16, Form(), 32, 1, 4, True)
    assert listing(variant, "sm_80").count("CCTL.E.PF2") == 4
    assert "prefetch" not in listing(norms.pieces(16384, 2, torch.bfloat16, Form(), 16, 1, 4, True), "gfx942")


def test_pairs_are_compared_two_at_once() -> None:
    text = listing(softmax._ahead(32768, torch.bfloat16, 32, 4, True), "sm_90")
    assert len(re.findall(r"HMNMX2?\.BF16", text)) == 16
    assert len(re.findall(r"MUFU\.EX2", text)) <= 4 * 32 + 1
