"""Which calls get attention by warp groups, the order of its tiles, and what its launch asks Triton for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.measure.landscape.offline import compiled, unlaunched
from kernels.ops.attention import flash_attention, flash_attention_hopper, hopper_variants
from kernels.ops.attention.flash_attention import heads_together
from kernels.ops.attention.hopper_variants import TILE, as_table, key_blocks, offered, plan, runs_on
from kernels.tuning import Limits, Variant, misfit
from profiler.oracle.compiler.targets import TARGETS
from tests.kernels.gluon.interpreter import Program, bound

H200 = 132
"""Multiprocessors."""

ROWS = [
    # heads, queries and keys, causal, D; the most that a program may be above the mean
    ((128, 4096, True, 128), 1.006),
    ((64, 4096, True, 128), 1.01),
    ((256, 1024, False, 64), 1.04),  # 15.5 tiles a multiprocessor: some take 16
]


def empty(d: int = 128, dtype: torch.dtype = torch.bfloat16, rows: int = 4096, device: str = "meta") -> torch.Tensor:
    return torch.empty((4, 32, rows, d), dtype=dtype, device=device)


def kernels_of(q: torch.Tensor, **changes: Any) -> list[str]:
    given: dict[str, Any] = {"bias": None, "causal": True, "window": None, "cap": None, "scale": 1.0} | changes
    given = {"logsumexp": False, "tma": True} | given
    return [v.kernel.__name__ for v in flash_attention.space(q, q, **given)]


@pytest.fixture
def _on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU that has what it takes."""
    monkeypatch.setattr(hopper_variants, "runs_on", lambda device: True)


def test_without_a_hopper_the_other_kernels_are_all_there_is() -> None:
    assert not runs_on(torch.device("cpu"))
    assert not runs_on(torch.device("meta"))
    assert set(kernels_of(empty())) == {"flash_attention_kernel"}


@pytest.mark.usefixtures("_on_hopper")
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"logsumexp": True}, {"scale": 0.01}])
def test_plain_attention_may_have_it_and_the_other_kernels_too(
    d: int, dtype: torch.dtype, changes: dict[str, Any]
) -> None:
    names = kernels_of(empty(d, dtype), **changes)
    assert names[0] == "flash_attention_hopper_kernel"
    assert names.count("flash_attention_hopper_kernel") == len(hopper_variants.SHAPES[d])
    assert "flash_attention_kernel" in names


@pytest.mark.usefixtures("_on_hopper")
@pytest.mark.parametrize(
    ("q", "changes"),
    [
        (empty(96), {}),
        (empty(256), {}),
        (empty(dtype=torch.float32), {}),
        (empty(rows=16), {}),  # a few queries do not fill a tile
        (empty(), {"tma": False}),
        (empty(), {"cap": 30.0}),
        (empty(), {"window": 512}),
        (empty(), {"scale": -1.0}),
        (empty(), {"bias": empty()[:1, :1, :1]}),
    ],
    ids=["d=96", "d=256", "f32", "16 queries", "no descriptors", "cap", "window", "negative scale", "bias"],
)
def test_what_it_does_not_compute_keeps_the_other_kernels(q: torch.Tensor, changes: dict[str, Any]) -> None:
    assert set(kernels_of(q, **changes)) == {"flash_attention_kernel"}


def test_another_triton_keeps_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper_variants, "_capability", lambda device: (9, 0))
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    assert runs_on(gpu)
    monkeypatch.setattr(triton, "__version__", "3.8.0")
    assert not runs_on(gpu)
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    monkeypatch.setattr(hopper_variants, "_capability", lambda device: (10, 0))
    assert not runs_on(gpu)
    assert not offered(empty(), 128, True, True, True)


@pytest.mark.parametrize(("sizes", "most"), ROWS)
def test_every_tile_is_taken_once_and_programs_end_together(sizes: tuple[int, int, bool, int], most: float) -> None:
    heads, length, causal, d = sizes
    blocks = -(-length // TILE)
    together = heads_together(length, d, 2, 1, heads, not causal)
    lists = plan(blocks, heads, together, H200, 128, length, causal)
    assert sorted(tile for tiles in lists for tile in tiles) == list(range(blocks * heads))
    work = [sum(key_blocks(t // heads, length, 128, causal) * 128 + hopper_variants.TILE_KEYS for t in tiles)
            for tiles in lists]  # fmt: skip
    assert max(work) <= most * sum(work) / H200


@pytest.mark.parametrize(("blocks", "heads", "together", "programs"), [(1, 1, 1, 132), (3, 5, 2, 4), (7, 3, 8, 2)])
@pytest.mark.parametrize("causal", [True, False])
def test_every_program_has_tiles_of_one_group_of_heads_after_the_other_the_longest_first(
    blocks: int, heads: int, together: int, programs: int, causal: bool
) -> None:
    lists = plan(blocks, heads, together, programs, 128, blocks * 128, causal)
    assert len(lists) == min(programs, blocks * heads)
    for tiles in lists:
        places = [(t % heads // together, -(t // heads)) for t in tiles]
        assert places == sorted(places)
        assert places


def test_the_table_says_how_many_tiles_and_ends_in_one_that_may_be_read() -> None:
    assert as_table([[5, 3], [4]]) == [[2, 5, 3, 0], [1, 4, 0, 0]]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bn", [128, 256])
def test_the_plan_counts_blocks_of_keys_as_the_kernel_does(causal: bool, bn: int) -> None:
    counted = bound(flash_attention_hopper, Program(0, 0))["keys_of"]
    for columns in (1, 63, 64, 65, 128, 129, 500):
        for block in range(6):
            count, whole = counted(block, columns, bn, causal)
            assert count == key_blocks(block, columns, bn, causal) >= 1
            rows = range(block * TILE, (block + 1) * TILE)
            seen = [min(columns - 1, row) if causal else columns - 1 for row in rows]
            assert count == max(seen) // bn + 1
            assert whole == (min(seen) + 1) // bn
            assert count - 1 <= whole, "one block has the mask's whole edge"


def launched(variant: Variant, q: torch.Tensor) -> tuple[str, tuple[Any, ...]]:
    """Which kernel this variant's launch asks for, and with what."""
    with unlaunched("sm_90") as asked:
        flash_attention.launch(variant, q, q, q, None, torch.empty_like(q), q, None, None, 0.1)
    ((function, arguments, _),) = asked
    return function.__name__, arguments


def test_under_capture_a_call_whose_tiles_are_not_on_the_gpu_takes_the_present_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q = empty(rows=700)
    variant = hopper_variants.variant(128, *hopper_variants.SHAPES[128][0], True, False, False)
    monkeypatch.setattr(hopper_variants, "_tables", {})
    monkeypatch.setattr(hopper_variants, "_captures", lambda device: True)
    name, arguments = launched(variant, q)
    assert name == "flash_attention_kernel"
    assert arguments[10] == 700
    monkeypatch.setattr(hopper_variants, "_captures", lambda device: False)
    name, warm = launched(variant, q)
    assert name == "flash_attention_hopper_kernel"
    monkeypatch.setattr(hopper_variants, "_captures", lambda device: True)
    name, captured = launched(variant, q)
    assert name == "flash_attention_hopper_kernel"
    assert captured[5] is warm[5], "what a graph reads at every replay is not made anew"
    assert launched(variant, empty(rows=900))[0] == "flash_attention_kernel"


def test_a_trace_of_torch_compile_takes_the_present_kernel_which_its_code_knows() -> None:
    q = torch.zeros(1, 2, 200, 64)
    variant = hopper_variants.variant(64, *hopper_variants.SHAPES[64][0], True, False, False)
    assert hopper_variants.tiles_for(variant, q, q, 2) is not None
    compiled = torch.compile(lambda: hopper_variants.tiles_for(variant, q, q, 2) is None, backend="eager")
    assert compiled()


class Seen(TorchDispatchMode):
    """Which operators this thread runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_tiles_are_not_allocated_by_the_calling_thread_whose_memory_a_cuda_graph_may_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hopper_variants, "_tables", {})
    q = torch.zeros(1, 2, 200, 64)
    variant = hopper_variants.variant(64, *hopper_variants.SHAPES[64][0], True, False, False)
    with torch.inference_mode(), Seen() as seen:
        table = hopper_variants.tiles_for(variant, q, q, 2)
    assert not seen.names
    assert table is not None
    assert not table.is_inference()
    assert table.tolist() == as_table(plan(2, 2, 2, 2, 128, 200, True))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [True, False])
def test_every_variant_compiles_as_it_is_launched_and_needs_what_its_model_says(d: int, causal: bool) -> None:
    q, k = empty(d, rows=300), empty(d, rows=260)[:, :16]
    lse = torch.empty((4, 32, 300), device="meta")
    for variant in hopper_variants.space(d, 260, causal, True):
        with unlaunched("sm_90") as asked:
            flash_attention.launch(variant, q, k, k, None, torch.empty_like(q), lse, None, None, 0.1)
        ((function, arguments, options),) = asked
        assert arguments[4] is lse
        assert arguments[7:12] == (32, 128, 2, 300, 260)
        assert math.isclose(arguments[12], 0.1 * math.log2(math.e))
        machine = compiled(function, arguments, options, "sm_90")
        assert machine.warp_specialized
        assert machine.block_warps == 12
        assert machine.shared_bytes <= variant.shared_bytes <= TARGETS["sm_90"].shared_block_bytes
        assert not misfit(variant, Limits())
        assert (machine.spill_bytes or 0) <= 32
        text = machine.texts["ptx"]
        assert f"setmaxnreg.inc.sync.aligned.u32 \t{variant['REGISTERS']}" in text
        assert "setmaxnreg.dec.sync.aligned.u32 \t24" in text
        # Between the products of a step and the wait for the last of them stand the exponentials.
        loop = text[text.rindex("wgmma.wait_group.sync.aligned 1") :]
        assert "ex2.approx" in loop[: loop.index("wgmma.wait_group.sync.aligned 0")]
