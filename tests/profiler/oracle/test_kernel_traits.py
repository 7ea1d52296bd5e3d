"""Traits of kernels as Inductor wrote them, against their sources read by hand and against Inductor's own counts."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from subprocess import run

import pytest

from profiler.oracle.inductor.answer import predict
from profiler.oracle.kernel_traits import KernelTraits, read_traits
from profiler.oracle.model import OracleKernel
from profiler.region.language.text import parse
from tests.profiler.oracle.asking import device, text

TEXTS = Path(__file__).parent / "compiler" / "inductor_kernels"
VERSIONS = ["2.11", "2.13"]
N = 8192 * 16384


def kept(version: str, name: str) -> KernelTraits:
    """Of a kernel that a version of torch wrote."""
    return read_traits((TEXTS / version / f"{name}.txt").read_text())


def kernels(region: str, mode: str = "default") -> list[OracleKernel]:
    """Of a region, as this torch writes them."""
    return list(predict(parse(region), None, device(), mode).kernels)


def executed(traits: KernelTraits) -> dict[str, int | None]:
    return {f.name: f.executions for f in traits.functions}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pointwise_kernel_reads_the_bias_as_one_row(version: str) -> None:
    traits = kept(version, "pointwise")
    assert (traits.kind, traits.sizes, traits.tiles, traits.loops) == ("pointwise", (("x", N),), 1, 0)
    product, bias, mask = traits.loads
    assert [a.dtype for a in traits.accesses] == ["bf16"] * 4
    assert (product.elements, bias.elements, mask.elements) == (N, 16384, N)
    assert product.contiguous and not product.indirect and product.run == N
    assert bias.lanes == N and bias.run == 16384
    assert executed(traits) == {"erf": N}
    assert (traits.num_load, traits.num_store, traits.num_reduction, traits.index_divisions) == (3, 1, 0, 1)
    assert traits.bytes_touched == 2 * (3 * N + 16384)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_looped_reduction_reads_its_rows_in_each_loop(version: str) -> None:
    traits = kept(version, "reduction")
    assert (traits.kind, traits.sizes) == ("reduction", (("x", 16384), ("r0", 16384)))
    assert (traits.loops, traits.persistent, traits.reduction_hint) == (2, False, "INNER")
    first, second, weight = traits.loads
    assert [(a.pointer, a.loop) for a in traits.accesses] == [
        ("in_ptr0", 1), ("in_ptr0", 2), ("in_ptr1", 2), ("out_ptr1", 2)
    ]  # fmt: skip
    assert first.elements == second.elements == 16384**2 and dict(zip(first.axes, first.strides, strict=True)) == {
        "x": 16384, "r0": 1
    }  # fmt: skip
    assert weight.axes == ("r0",) and weight.elements == 16384
    assert traits.reductions == (("sum", 1),) and traits.rows == 16384
    assert executed(traits) == {"divide": 16384, "rsqrt": 16384}, "once a row, after the loop"
    assert traits.bytes_touched == 2 * (2 * 16384**2 + 16384), "the second reading of a row moves the same bytes"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_persistent_reduction_has_no_loop(version: str) -> None:
    traits = kept(version, "persistent")
    assert traits.kind == "persistent_reduction" and traits.persistent and traits.loops == 0
    assert {a.loop for a in traits.accesses} == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_scan_keeps_its_rows_and_says_its_least_block(version: str) -> None:
    traits = kept(version, "splitscan")
    assert (traits.kind, traits.sizes) == ("split_scan", (("x", 1), ("r0", 4194304)))
    assert dict(traits.reductions)["scan"] == 1
    assert (traits.min_split_scan_block, traits.mutated) == (256, ("ws_ptr",))
    assert traits.stores[0].elements == 4194304 and traits.stores[0].contiguous


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transposed_operand_is_contiguous_along_the_other_tile(version: str) -> None:
    traits = kept(version, "transpose")
    assert (traits.tiles, dict(traits.sizes)) == (2, {"y": 4096, "x": 8192})
    straight, turned = (dict(zip(a.axes, a.strides, strict=True)) for a in traits.loads)
    assert (straight, turned) == ({"x": 1, "y": 8192}, {"x": 4096, "y": 1})


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_an_odd_length_end_the_run(version: str) -> None:
    shifted, straight = kept(version, "unaligned").loads
    assert (shifted.offset, straight.offset) == (1, 0)
    assert shifted.run == straight.run == 4096 and shifted.span == 4096 * 4097 - 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_says_sizes_and_tile(version: str) -> None:
    template = kept(version, "gemm").template
    assert template is not None
    assert (template.m, template.n, template.k, template.batch) == (8192, 4096, 4096, 1)
    tile = (template.block_m, template.block_n, template.block_k, template.num_stages, template.num_warps)
    assert tile == {"2.11": (128, 128, 32, 2, 8), "2.13": (128, 256, 64, 4, 8)}[version]
    assert template.allow_tf32 is False and dict(template.constants)["stride_am"] == 4096
    traits = kept(version, "gemm")
    epilogue = [a for a in traits.accesses if a.loop == 0]
    assert [(a.kind, a.elements) for a in epilogue] == [("load", 8192 * 4096), ("store", 8192 * 4096)]
    assert executed(traits) == {"dot": None, "erf": 8192 * 4096}


def test_a_batched_template_and_a_convolution_say_how_much_they_multiply() -> None:
    product = kernels(text("samples/batched_product"), "max-autotune")[0].traits.template
    assert product is not None and (product.m, product.n, product.k) == (512, 512, 512)
    grouped = "x: bf16[8, 64, 28, 28]\nw: bf16[128, 64, 3, 3]\nreturn relu(F.conv2d(x, w, stride=2, padding=1))\n"
    template = next(t for k in kernels(grouped, "max-autotune") if (t := k.traits.template))
    assert (template.m, template.n, template.k, template.batch) == (8 * 14 * 14, 128, 64 * 9, 1)


def test_sizes_beyond_32_bits_are_read_as_well() -> None:
    region = "x: bf16[65536, 512]\nw: bf16[512, 131072]\nreturn relu(x @ w)\n"
    template = kernels(region, "max-autotune")[0].traits.template
    assert template is not None and dict(template.constants)["INDEX_DTYPE"] == "int64"
    assert (template.m, template.n, template.k, template.batch) == (65536, 131072, 512, 1)


def test_a_depthwise_convolution_along_one_axis_is_a_small_product_for_each_channel() -> None:
    templates = [k.traits.template for k in kernels(text("causal_conv1d_silu"), "max-autotune")]
    (template,) = (t for t in templates if t)
    assert (template.m, template.n, template.k, template.batch) == (2048, 1, 4, 4096)


def test_a_sum_of_two_products_multiplies_along_both() -> None:
    region = "".join(f"{n}: bf16[1024, 1024]\n" for n in "abcd") + "return a @ b + c @ d\n"
    templates = [k.traits.template for k in kernels(region, "max-autotune")]
    products = [t.m * t.n * t.k * t.batch for t in templates if t and t.m and t.n and t.k and t.batch]
    assert len(products) == len(templates) and sum(products) == 2 * 1024**3


COUNTED = {
    "softmax": "x: bf16[4096, 4096]\nreturn softmax(x.float(), -1).to(bf16)\n",
    "columns": "x: f32[2048, 2048]\nreturn x.softmax(0)\n",
    "permuted": "x: bf16[64, 128, 32, 16]\nreturn x.permute(0, 2, 3, 1).contiguous() * 2\n",
    "padded": "x: f32[1024, 1000]\nreturn F.pad(x, (4, 20)) * 2\n",
    "joined": "x: f32[4096, 2048]\ny: f32[4096, 2048]\nreturn relu(torch.cat([x, y], 1))\n",
    "halves": "x: bf16[8, 32, 1024, 128]\nc: bf16[1024, 128]\n"
    "return x * c + torch.cat([-x[..., 64:], x[..., :64]], -1) * c\n",
    "turned": "x: f32[1024, 1024]\nreturn x.flip(1) + x\n",
    "every other": "x: f32[1024, 2048]\nreturn x[:, ::2] * 3\n",
    "grown": "x: f32[1024, 1]\ny: f32[1, 2048]\nreturn x + y\n",
    "two axes": "x: f32[256, 64, 100]\nreturn x.sum((0, 2))\n",
    "pooled": "x: f32[32, 64, 112, 112]\nreturn F.max_pool2d(x, 2)\n",
    "looked up": "i: i64[8192].below(50000)\nw: bf16[50000, 4096]\nreturn F.embedding(i, w) * 2\n",
    "gathered": "x: f32[4096, 1024]\ni: i64[4096, 16].below(1024)\nreturn torch.gather(x, 1, i)\n",
    "statistics": "x: bf16[64, 262144]\nreturn F.layer_norm(x, (262144,))\n",
    "dropped": "x: bf16[4096, 4096]\nreturn F.dropout(x, 0.1)\n",
}


@pytest.mark.parametrize("name", COUNTED)
def test_bytes_touched_are_those_that_inductor_counts(name: str) -> None:
    written = kernels(COUNTED[name])
    assert written
    for kernel in written:
        assert kernel.traits.bytes_touched == kernel.bytes_moved, kernel.name
        assert kernel.traits.kind == kernel.kind


@pytest.mark.parametrize("name", ["samples/adam", "samples/layer_norm", "samples/rope", "training/rms_norm_by_hand"])
def test_loads_and_stores_are_as_many_as_inductor_says(name: str) -> None:
    for kernel in kernels(text(name)):
        traits = kernel.traits
        assert len(traits.stores) == traits.num_store or "ws_ptr" in kernel.source
        assert len({(a.pointer, a.offset, a.strides) for a in traits.loads}) <= (traits.num_load or 0)


def test_overlapping_windows_are_read_once() -> None:
    (kernel,) = kernels("x: f32[8, 64, 56, 56]\nreturn F.avg_pool2d(x, 3, 1)\n")
    read, written = 8 * 64 * 56 * 56, 8 * 64 * 54 * 54
    assert len(kernel.traits.loads) == 9
    assert 0 <= 4 * (read + written) - (kernel.traits.bytes_touched or 0) <= 4 * read * 0.01


def test_a_row_gather_is_contiguous_and_a_gather_of_elements_is_not() -> None:
    (rows,) = kernels("i: i64[8192].below(50000)\nw: bf16[50000, 4096]\nreturn F.embedding(i, w) * 2\n")
    (elements,) = kernels("x: f32[4096, 1024]\ni: i64[4096, 16].below(1024)\nreturn torch.gather(x, 1, i) * 2\n")
    row, element = (next(a for a in k.traits.loads if a.indirect) for k in (rows, elements))
    assert (row.contiguous, row.run, row.elements) == (True, 4096, 8192 * 4096)
    assert (element.contiguous, element.stride, element.run, element.elements) == (False, None, 1, 4096 * 16)


def test_a_scatter_adds_atomically() -> None:
    traits = kernels(text("samples/scatter_add"))[1].traits
    (added,) = traits.atomics
    assert (added.kind, added.dtype, added.indirect, added.run) == ("atomic_add", "f32", True, 64)
    assert (added.lanes, added.elements) == (131072 * 64, 4096 * 64), "131,072 rows are added to 4,096"


def test_the_parts_of_a_concatenation_are_conditional() -> None:
    (kernel,) = kernels(COUNTED["joined"])
    assert [(a.conditional, a.elements) for a in kernel.traits.loads] == [(True, 4096 * 2048)] * 2
    assert [a.conditional for a in kernel.traits.stores] == [False]


def test_functions_count_by_what_they_are_computed_for() -> None:
    (kernel,) = kernels("x: f32[1048576]\nreturn sin(x) * tanh(x) + erf(x).exp() + torch.sigmoid(x)\n")
    assert executed(kernel.traits) == dict.fromkeys(("sin", "tanh", "erf", "exp", "sigmoid"), 1048576)
    (random_numbers,) = kernels(COUNTED["dropped"])
    assert executed(random_numbers.traits)["rand"] == 4096 * 4096


@pytest.mark.parametrize(
    ("region", "kind"),
    [("x.sum(-1)", "sum"), ("x.amax(-1)", "max"), ("x.argmax(-1)", "argmax"), ("x.cumsum(-1)", "scan"),
     ("x.prod(-1)", "prod"), ("F.layer_norm(x, (16384,))", "welford"), ("sort(x[:, :512], -1)[0] * 2", "sort"),
     ("(x > 0).any(-1)", "any")],
)  # fmt: skip
def test_reductions_are_named(region: str, kind: str) -> None:
    written = kernels(f"x: f32[4096, 16384]\nreturn {region}\n")
    assert kind in {k for kernel in written for k, _ in kernel.traits.reductions}


FOREACH = """
@triton_heuristics.foreach(
    num_warps=8,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'out_ptr1': '*fp32'}},
    inductor_meta={'kernel_name': 'triton_for_fused_0', 'mutated_arg_names': []},
)
@triton.jit
def triton_for_fused_0(in_ptr0, in_ptr1, out_ptr0, out_ptr1):
    pid = tl.program_id(0)
    XBLOCK: tl.constexpr = 1024
    num_xblocks_0 = tl.cdiv(4096, XBLOCK)
    num_xblocks_1 = num_xblocks_0 + tl.cdiv(100, XBLOCK)
    if pid < num_xblocks_0:
        pid_offset = pid
        xnumel = 4096
        r0_numel = 1
        xoffset = pid_offset * XBLOCK
        xindex = xoffset + tl.arange(0, XBLOCK)[:]
        x0 = xindex
        tmp0 = tl.load(in_ptr0 + (x0), None)
        tl.store(out_ptr0 + (x0), tmp0 * 2, None)
    elif pid < num_xblocks_1:
        pid_offset = pid - num_xblocks_0
        xnumel = 100
        xoffset = pid_offset * XBLOCK
        xindex = xoffset + tl.arange(0, XBLOCK)[:]
        xmask = xindex < xnumel
        x0 = xindex
        tmp0 = tl.load(in_ptr1 + (x0), xmask)
        tl.store(out_ptr1 + (x0), tmp0 * 2, xmask)
    else:
        pass
"""


def test_each_tensor_of_a_foreach_kernel_has_its_own_size() -> None:
    traits = read_traits(FOREACH)
    assert (traits.kind, traits.sizes, traits.num_warps) == ("foreach", (), 8)
    assert [(a.kind, a.elements) for a in traits.accesses] == [
        ("load", 4096), ("store", 4096), ("load", 100), ("store", 100)
    ]  # fmt: skip
    assert not any(a.conditional for a in traits.accesses)


TILED = """
@triton_heuristics.reduction(
    size_hints={'x': 64, 'r0_': 32, 'r1_': 128}, reduction_hint=ReductionHint.DEFAULT,
    triton_meta={'signature': {'in_ptr0': '*fp16', 'out_ptr0': '*fp16'}},
)
@triton.jit
def triton_red_0(in_ptr0, out_ptr0, xnumel, r0_numel, r1_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xnumel = 50
    r0_numel = 30
    r1_numel = 100
    rnumel = r0_numel * r1_numel
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None, None]
    x0 = xindex
    _tmp2 = tl.full([XBLOCK, R0_BLOCK, R1_BLOCK], 0, tl.float32)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        for r1_offset in range(0, r1_numel, R1_BLOCK):
            r1_index = r1_offset + r1_base
            r1_2 = r1_index
            r0_1 = r0_index
            tmp0 = tl.load(in_ptr0 + (r1_2 + 128*r0_1 + 4096*x0), xmask, other=0.0).to(tl.float32)
            tmp1 = _tmp2 + tmp0
            _tmp2 = tl.where(xmask, tmp1, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
"""


def test_loops_within_each_other_are_one_loop_over_the_reduction() -> None:
    traits = read_traits(TILED)
    assert (traits.loops, traits.rows, traits.sizes) == (1, 50, (("x", 50), ("r0", 30), ("r1", 100)))
    load = traits.loads[0]
    assert (load.axes, load.strides, load.loop) == (("r0", "r1", "x"), (128, 1, 4096), 1)
    assert (load.elements, load.run) == (50 * 3000, 100)


SYMBOLIC = """
@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'ks0': 'i64', 'xnumel': 'i32'}},
)
@triton.jit
def triton_poi_0(in_ptr0, out_ptr0, ks0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x0 = xindex % ks0
    tmp0 = tl.load(in_ptr0 + (x0 + 7*(xindex // ks0)), xmask)
    tl.store(out_ptr0 + (xindex), tmp0, xmask)
"""


def test_sizes_that_stay_symbolic_are_unknown() -> None:
    traits = read_traits(SYMBOLIC)
    assert traits.sizes == () and traits.size_hints == (("x", 1024),)
    assert traits.rows is None and traits.bytes_touched is None
    assert [(a.elements, a.lanes) for a in traits.accesses] == [(None, None)] * 2


def test_a_block_pointer_says_what_it_points_into_and_not_where() -> None:
    block = (
        "tl.load(tl.make_block_ptr(in_ptr0, shape=[100], strides=[1], block_shape=[XBLOCK], order=[0], offsets=[0]))"
    )
    traits = read_traits(SYMBOLIC.replace("tl.load(in_ptr0 + (x0 + 7*(xindex // ks0)), xmask)", block))
    (load,) = traits.loads
    assert (load.pointer, load.dtype, load.lanes, load.elements, load.run) == ("in_ptr0", "f32", None, None, None)


def test_a_place_that_depends_on_the_block_is_unknown() -> None:
    partial = "tl.store(out_ptr0 + (tl.program_id(0) * 7 + xindex), tmp0, xmask)"
    traits = read_traits(SYMBOLIC.replace("tl.store(out_ptr0 + (xindex), tmp0, xmask)", partial))
    (store,) = traits.stores
    assert (store.axes, store.lanes, store.elements) == (("x",), None, None)


@pytest.mark.parametrize("damaged", ["", "not python (", "def f():\n    pass\n", "x = 1\n", "(" * 5000, "\0"])
def test_what_is_no_kernel_has_no_traits(damaged: str) -> None:
    assert read_traits(damaged) == KernelTraits()


@pytest.mark.parametrize("version", VERSIONS)
def test_no_damage_to_a_kernel_raises(version: str) -> None:
    random.seed(7)
    for path in sorted((TEXTS / version).glob("*.txt")):
        lines = path.read_text().splitlines()
        for _ in range(15):
            left = [line for line in lines if random.random() > 0.05]
            words = "\n".join(left).replace(
                random.choice(("tl.", "16384", "index", "ptr0", "(x")), random.choice("a1,(")
            )
            assert isinstance(read_traits(words), KernelTraits)


def test_traits_are_read_without_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from profiler.oracle.model import OracleKernel;"
        f"s = Path({str(TEXTS / '2.13' / 'pointwise.txt')!r}).read_text();"
        "k = OracleKernel('k', 'pointwise', 1, None, (), s); assert k.traits.num_load == 3;"
        "assert k.traits is k.traits; assert 'torch' not in sys.modules"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
