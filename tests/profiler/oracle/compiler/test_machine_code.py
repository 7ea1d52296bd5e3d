"""What is read off machine code, on kernels whose instructions can be counted by hand."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiler.oracle.compiler import binary_tools, machine_code
from profiler.oracle.compiler.findings import findings
from profiler.oracle.compiler.machine import (
    ASYNC_COPY,
    ATOMIC,
    BARRIER,
    FLOAT,
    GLOBAL_LOAD,
    GLOBAL_STORE,
    LOCAL_LOAD,
    LOCAL_STORE,
    MATRIX,
    SHUFFLE,
    Machine,
)
from profiler.oracle.compiler.machine_code import CompileError, compile_for
from profiler.oracle.compiler.targets import TARGETS
from tests.profiler.oracle.compiler import machine_kernels as kernels
from tests.profiler.oracle.compiler.readings import load_bits, sentences, store_bits

PRODUCT = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "N": "i32", "K": "i32"}
TILE = {"BM": 128, "BN": 128, "BK": 64}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def product(target: str, **more: Any) -> Machine:
    return compile_for(kernels.product, PRODUCT, TILE, target, 8, divisible=("N", "K"), **more)


def line_with(function: Any, text: str) -> int:
    """The number in its file of the first line of a kernel that holds this text."""
    lines, start = inspect.getsourcelines(function.fn)
    return next(start + n for n, line in enumerate(lines) if text in line)


def at(machine: Machine, number: int, kind: str) -> dict[int | None, int]:
    """Instructions of one kind on one line: bits -> count."""
    (line,) = [line for line in machine.lines if line.number == number]
    return {t.bits: t.count for t in line.tallies if t.kind == kind}


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_aligned_pointers_give_whole_vectors_and_unaligned_ones_single_elements(target: str) -> None:
    signature = dict.fromkeys(("x", "y", "z"), "*bf16")
    block = 8 * 4 * 32  # eight bf16 a thread: 128 bits
    wide = compile_for(kernels.add, signature, {"B": block}, target)
    narrow = compile_for(kernels.add, signature, {"B": block}, target, aligned=False)
    first, second = line_with(kernels.add, "load(x"), line_with(kernels.add, "load(y")
    store = line_with(kernels.add, "store(z")
    assert load_bits(wide) == store_bits(wide) == (128,)
    assert at(wide, first, GLOBAL_LOAD) == at(wide, second, GLOBAL_LOAD) == at(wide, store, GLOBAL_STORE) == {128: 1}
    assert load_bits(narrow) == store_bits(narrow) == (16,)
    assert at(narrow, first, GLOBAL_LOAD) == at(narrow, second, GLOBAL_LOAD) == {16: 8}
    assert at(narrow, store, GLOBAL_STORE) == {16: 8}
    assert f"loads 128 bits at a time: lines {first}, {second}" in sentences(wide)
    assert f"loads 16 bits at a time: lines {first}, {second}" in sentences(narrow)


def test_aligned_pointers_matter_on_amd_as_well_and_no_line_is_guessed() -> None:
    signature = dict.fromkeys(("x", "y", "z"), "*bf16")
    wide = compile_for(kernels.add, signature, {"B": 8 * 4 * 64}, "gfx942")
    narrow = compile_for(kernels.add, signature, {"B": 8 * 4 * 64}, "gfx942", aligned=False)
    assert (load_bits(wide), store_bits(wide), wide.count(GLOBAL_LOAD)) == ((128,), (128,), 2)
    assert (load_bits(narrow), store_bits(narrow), narrow.count(GLOBAL_LOAD)) == ((16,), (16,), 16)
    assert "loads 16 bits at a time" in sentences(narrow)


def test_widths_in_the_machine_code_are_those_of_the_ptx() -> None:
    for made in (product("sm_90"), compile_for(kernels.row_sum, ROW, {"B": 4096}, "sm_90", 8)):
        asked = re.findall(r"(ld|st)\.global(?:\.\w+::\w+)*(?:\.v(\d))?\.b(\d+)", made.ptx)
        widths = {op: sorted(int(n or 1) * int(b) for o, n, b in asked if o == op) for op in ("ld", "st")}
        for op, kind in (("ld", GLOBAL_LOAD), ("st", GLOBAL_STORE)):
            assert sorted(t.bits for _, t in made.tallies(kind) for _ in range(t.count)) == widths[op]


ROW = {"x": "*fp32", "y": "*fp32", "n": "i32"}


def test_a_tile_too_large_for_the_registers_spills_where_it_is_held() -> None:
    signature, tile = {"x": "*fp32", "y": "*fp32"}, {"M": 128, "N": 256}
    made = compile_for(kernels.columns, signature, tile, "sm_90", 4)
    assert made.registers == 255  # 32,768 values over 128 threads are 256 each, and 255 is the most that there are
    assert made.spill_bytes
    assert made.spill_load_bytes
    assert made.stack_bytes
    assert made.count(LOCAL_STORE) == len(re.findall(r"\sSTL\b", made.sass)) > 0
    assert made.count(LOCAL_LOAD) == len(re.findall(r"\sLDL\b", made.sass)) > 0
    (said,) = [f for f in findings(made) if f.subject == "spills"]
    assert f"{made.spill_bytes} bytes stored into {made.stack_bytes} of local memory" in said.text
    inside = range(line_with(kernels.columns, "def columns"), line_with(kernels.columns, "tl.store") + 1)
    assert said.lines
    assert set(said.lines) <= set(inside)
    wide = compile_for(kernels.columns, signature, tile, "sm_90", 16)
    assert wide.spill_bytes == wide.stack_bytes == wide.count(LOCAL_LOAD, LOCAL_STORE) == 0
    assert "spills nothing" in sentences(wide)


def test_a_report_of_spills_counts_only_for_the_very_same_registers() -> None:
    signature, tile = {"x": "*fp32", "y": "*fp32"}, {"M": 128, "N": 256}
    made = compile_for(kernels.columns, signature, tile, "sm_90", 4)
    same = binary_tools.Usage(made.registers, made.stack_bytes)
    assert binary_tools.spills_of(made.ptx, 90, True, same) == binary_tools.Spills(
        made.spill_bytes or 0, made.spill_load_bytes or 0
    )
    assert binary_tools.spills_of(made.ptx, 90, True, binary_tools.Usage(64, made.stack_bytes)) is None
    assert binary_tools.spills_of("no PTX", 90, True, same) is None


def test_an_array_in_local_memory_is_not_called_a_spill() -> None:
    made = compile_for(kernels.sines, {"x": "*fp32", "y": "*fp32"}, {"B": 1024}, "sm_90")
    assert made.stack_bytes
    assert made.count(LOCAL_LOAD, LOCAL_STORE)
    assert made.spill_bytes == made.spill_load_bytes == 0
    line = line_with(kernels.sines, "tl.sin(")
    assert f"a thread keeps {made.stack_bytes} bytes in local memory for arrays, no spills: line {line}" in (
        sentences(made)
    )


@pytest.mark.parametrize(
    ("target", "instruction", "shape", "count", "copies"),
    [
        # the tile is 128 x 128 x 64: 512 products of 16 x 8 x 16, over 8 warps
        ("sm_80", "mma.sync", "m16n8k16", 64, 2),
        # two groups of four warps, 64 rows each: four steps of 16 along K
        ("sm_90", "wgmma", "m64n128k16", 4, 3),
        ("sm_120", "mma.sync", "m16n8k16", 64, 2),
    ],
)
def test_products_use_the_matrix_instruction_of_the_gpu(
    target: str, instruction: str, shape: str, count: int, copies: int
) -> None:
    made = product(target)
    assert [(m.instruction, m.shape, m.count) for m in made.matrix] == [(instruction, shape, count)]
    assert made.matrix[0].line == line_with(kernels.product, "tl.dot")
    assert "bf16.bf16" in made.matrix[0].types
    assert made.count(MATRIX) == count  # the machine code has as many as the PTX
    assert made.stages == copies
    assert [b.shape for b in made.buffers] == [(128, 64), (64, 128)]
    assert made.shared_bytes == sum(b.copies * b.shape[0] * b.shape[1] * 2 for b in made.buffers)


def test_a_pipelined_loop_copies_to_shared_memory_while_it_multiplies() -> None:
    made = product("sm_80")
    # a tile of 16 KiB is four copies of 16 bytes by each of 256 threads; twice before the loop, once in it
    copied = {n: line_with(kernels.product, f"{n} = tl.load") for n in "xy"}
    assert {n: at(made, line, ASYNC_COPY) for n, line in copied.items()} == {"x": {128: 12}, "y": {128: 12}}
    assert made.count(GLOBAL_LOAD) == 0
    assert load_bits(made) == (128,)
    said = sentences(made)
    assert f"keeps 2 tiles of 128 × 64 bf16 in shared memory: line {copied['x']}" in said
    two = product("sm_80", stages=2)
    assert two.stages == 1
    assert f"keeps 1 tile of 128 × 64 bf16 in shared memory: line {copied['x']}" in sentences(two)
    unpiped = product("sm_80", stages=1)
    assert unpiped.count(ASYNC_COPY) == 0
    assert unpiped.count(GLOBAL_LOAD) == 8
    assert unpiped.buffers == ()


def test_unknown_strides_make_the_compiler_give_up_pipelining_and_it_is_said() -> None:
    made = compile_for(kernels.product, PRODUCT, TILE, "sm_90", 8)
    assert load_bits(made) == (16,)
    assert made.buffers == ()
    assert "3 stages were asked for, no loop is pipelined in shared memory" in sentences(made)


def test_products_in_full_precision_run_on_the_vector_units_and_it_is_said() -> None:
    made = compile_for(kernels.exact_product, dict.fromkeys("abc", "*fp32"), {"B": 16}, "sm_90", 1)
    line = line_with(kernels.exact_product, "tl.dot")
    assert made.matrix == ()
    assert made.count(MATRIX) == 0
    assert len(re.findall(r"\sFFMA\b", made.sass)) == 16**3 / 32
    assert at(made, line, FLOAT)[None] >= 16**3 / 32
    assert f"no matrix instruction: products run on the vector units: line {line}" in sentences(made)


def test_a_reduction_meets_at_barriers_only_when_several_warps_take_part() -> None:
    many = compile_for(kernels.row_sum, ROW, {"B": 4096}, "sm_90", 8)
    one = compile_for(kernels.row_sum, ROW, {"B": 1024}, "sm_90", 1)
    line = line_with(kernels.row_sum, "tl.sum")
    assert many.barriers == len(re.findall(r"\sBAR\.", many.sass)) >= 1
    assert at(many, line, BARRIER)  # not a line of Triton's own library, where tl.sum is written
    assert many.shared_bytes > 0
    assert one.barriers == 0
    assert at(one, line, SHUFFLE) == {None: 5}  # 32 lanes are five halvings
    assert "no barriers: warps never wait for each other" in sentences(one)


def test_a_tile_through_a_descriptor_is_copied_by_the_tma_unit() -> None:
    signature = {"x": "*fp16", "y": "*fp16", "M": "i32", "N": "i32"}
    made = compile_for(kernels.tile_copy, signature, {"B": 64}, "sm_90", divisible=("N",))
    assert "cp.async.bulk.tensor" in made.ptx
    line = line_with(kernels.tile_copy, "source.load")
    assert at(made, line, ASYNC_COPY) == {None: 1}
    assert f"copies whole tiles asynchronously (TMA): line {line}" in sentences(made)
    older = compile_for(kernels.tile_copy, signature, {"B": 64}, "sm_80", divisible=("N",))
    assert older.count(ASYNC_COPY) == 0


def test_specialised_warps_count_among_the_warps_of_a_block() -> None:
    made = compile_for(kernels.specialized, PRODUCT, {"B": 64}, "sm_100", divisible=("N", "K"))
    (threads,) = re.findall(r"\.reqntid (\d+)", made.ptx)
    assert made.warp_specialized
    assert made.num_warps == 4
    assert made.block_warps == int(threads) // 32 > 4
    assert made.occupancy == made.blocks * int(threads) / 2048
    assert {b.shape for b in made.buffers} == {(64, 64)}
    assert {m.instruction for m in made.matrix} == {"tcgen05.mma"}
    assert "gives warps different work (warp specialisation)" in sentences(made)


def test_atomics_are_named_with_their_line() -> None:
    made = compile_for(kernels.histogram, {"x": "*i32", "y": "*i32"}, {"B": 128}, "sm_90")
    line = line_with(kernels.histogram, "atomic_add")
    assert at(made, line, ATOMIC) == {32: 1}
    assert f"1 atomic instruction: line {line}" in sentences(made)


def test_amd_says_its_registers_its_matrix_instruction_and_not_what_its_tools_do_not_tell() -> None:
    made = product("gfx942", stages=2)
    assert made.registers == int(re.findall(r"\.vgpr_count:\s*(\d+)", made.texts["amdgcn"])[0])
    assert made.stack_bytes == 0
    assert made.spill_load_bytes is None
    assert {m.instruction for m in made.matrix} == {"v_mfma"}
    assert sum(m.count for m in made.matrix) == len(re.findall(r"^\s+v_mfma_", made.texts["amdgcn"], re.MULTILINE))
    assert made.count(BARRIER) == len(re.findall(r"^\s+s_barrier", made.texts["amdgcn"], re.MULTILINE))
    assert load_bits(made) == (128,)
    assert made.sass == made.ptx == ""


@pytest.mark.parametrize(("warps", "block"), [(1, 512), (4, 8192), (4, 32768)])
def test_residence_on_amd_is_what_llvm_says_of_the_same_kernel(warps: int, block: int) -> None:
    made = compile_for(kernels.add, dict.fromkeys("xyz", "*fp32"), {"B": block}, "gfx942", warps)
    (waves,) = re.findall(r"; Occupancy: (\d+)", made.texts["amdgcn"])
    assert made.blocks is not None
    assert made.blocks * warps == 4 * int(waves)  # waves of one SIMD, of which a CU has four


def test_it_is_plain_json_and_can_leave_the_listings_out() -> None:
    made = product("sm_90")
    assert msgspec.convert(json.loads(json.dumps(made.to_dict())), Machine) == made
    short = made.to_dict(texts=False)
    assert "texts" not in short
    assert short["lines"]
    assert set(made.texts) == {"ttir", "ttgir", "llir", "ptx", "sass"}


def test_listings_name_no_folder_of_this_machine() -> None:
    made = compile_for(kernels.row_sum, ROW, {"B": 4096}, "sm_90")
    amd = compile_for(kernels.row_sum, ROW, {"B": 4096}, "gfx942")
    for name, text in (*made.texts.items(), *amd.texts.items()):
        assert str(Path(kernels.__file__).parent) not in text, name
        assert "site-packages" not in text, name
    assert "machine_kernels.py" in made.sass


def test_a_listing_that_is_too_long_is_cut_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = product("sm_90")
    monkeypatch.setattr(machine_code, "MAX_TEXT", 5000)
    cut = product("sm_90")
    assert set(cut.cut) == {name for name, text in whole.texts.items() if len(text) > 5000}
    for name, length in cut.cut.items():
        assert length == len(whole.texts[name])
        assert cut.texts[name].endswith(f"... cut here: {length:,} characters in all\n")
        assert len(cut.texts[name]) < 5100
    assert cut.lines == whole.lines  # counted before it was cut


def test_what_cannot_be_compiled_says_why_in_a_line() -> None:
    with pytest.raises(CompileError, match="power of 2"):
        compile_for(kernels.wrong, {"x": "*fp32"}, {"B": 1000})
    with pytest.raises(CompileError, match="sm_70"):
        compile_for(kernels.wrong, {"x": "*fp32"}, {"B": 1024}, "sm_70")


def test_a_kernel_that_needs_more_shared_memory_than_there_is_cannot_be_launched() -> None:
    made = product("sm_90", stages=8)
    assert made.shared_bytes > TARGETS["sm_90"].shared_block_bytes
    assert (made.blocks, made.occupancy, made.limited_by) == (0, 0, "shared memory")
    assert "it cannot be launched" in sentences(made)[0]
