"""Attention by warp groups: right on every edge, whatever the order in which its groups come to run."""

from __future__ import annotations

import importlib.util
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.ops.attention import flash_attention_hopper, hopper_variants
from kernels.ops.attention.flash_attention import reference
from tests.kernels.gluon.interpreter import Descriptor, HazardError, Pointer, run

Sizes = tuple[int, int, int, int, int, int]
"""Batch, key heads, query heads to each, queries, keys, D."""

WAYS: Mapping[str, Mapping[str, Any]] = {
    "two groups": {},
    "in turns": {"TURNS": True},
    "one more buffer of values": {"KEYS": 2, "VALUES": 3, "TURNS": True, "programs": 3},
    "two buffers of each": {"KEYS": 2, "VALUES": 2, "programs": 1},
    "more buffers than blocks": {"KEYS": 4, "VALUES": 5, "programs": 5},
    "blocks twice as long as tiles": {"BN": 256},
}


def errors(
    sizes: Sizes, causal: bool, seed: int = 0, programs: int = 2, module: types.ModuleType = flash_attention_hopper,
    **changes: Any,
) -> tuple[float, float]:  # fmt: skip
    """Run the kernel on f16 and return by how much its results and log-sum-exps differ from float64's at most."""
    batch, kv, sharing, rows, columns, d = sizes
    heads = kv * sharing
    made = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(batch, n, length, d, generator=made).half()
        for n, length in ((heads, rows), (kv, columns), (kv, columns))
    )
    o, lse = torch.full_like(q, torch.nan), torch.full((batch, heads, rows), torch.nan)
    constants = {"BN": 128, "KEYS": 3, "VALUES": 3, "TURNS": False, **changes}
    bn = constants["BN"]
    lists = hopper_variants.plan(-(-rows // 128), batch * heads, 2, programs, bn, columns, causal)
    table = torch.tensor(hopper_variants.as_table(lists))
    described = (Descriptor(x, (1, 1, n, d)) for x, n in ((q, 64), (k, bn), (v, bn), (o, 64)))
    run(
        module, "flash_attention_hopper_kernel", len(lists), *described, Pointer(lse.view(-1)),
        Pointer(table.view(-1)), table.shape[1], heads, batch * heads, sharing, rows, columns,
        d**-0.5 * math.log2(math.e), seed=seed, D=d, CAUSAL=causal, WHOLE=columns % bn == 0, LSE=True, REGISTERS=240,
        **constants,
    )  # fmt: skip
    wanted, sums = reference(q.double(), k.double(), v.double(), causal=causal, logsumexp=True)
    return float((o - wanted).abs().amax()), float((lse - sums).abs().amax())


def assert_right(found: tuple[float, float]) -> None:
    """Weights and results are rounded to f16: half a unit of its last place for a result of 4, and a little."""
    assert found[0] < 3e-3
    assert found[1] < 3e-6


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("sizes", "causal"),
    [
        ((1, 1, 1, 1, 1, 64), True),  # one of each
        ((1, 1, 1, 128, 128, 64), True),  # one tile, one block
        ((1, 1, 1, 200, 5, 128), False),  # far fewer keys than a block
        ((2, 1, 2, 300, 130, 64), True),  # queries that see all keys, heads that share keys, two batches
        ((1, 2, 1, 130, 400, 64), True),  # keys that no query sees
        ((1, 1, 3, 260, 300, 64), False),  # neither divides a tile
        ((1, 1, 1, 384, 384, 128), True),
    ],
)
def test_it_is_right_on_every_edge(sizes: Sizes, causal: bool, way: str) -> None:
    assert_right(errors(sizes, causal, **WAYS[way]))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("turns", [False, True])
def test_it_is_right_in_whatever_order_groups_run_and_copies_arrive(seed: int, turns: bool) -> None:
    assert_right(errors((1, 1, 2, 512, 620, 64), True, seed, programs=1, KEYS=2, TURNS=turns))


SYNCHRONISING = (".wait(", ".arrive(", ".expect(", "warpgroup_mma_wait(", "store_wait(")
TEXT = Path(flash_attention_hopper.__file__).read_text().splitlines()
LINES = [
    n for n, line in enumerate(TEXT)
    if any(word in line for word in SYNCHRONISING) and line.rstrip().endswith(")") and "turns" not in line
]  # fmt: skip


def without(line: int, folder: Path) -> types.ModuleType:
    """The kernel's module with one line left out: what it waits for is then taken as it is."""
    text = list(TEXT)
    left, _, right = text[line].partition(" = ")
    indent = left[: len(left) - len(left.lstrip())]
    text[line] = f"{indent}pass" if not right else f"{left} = {right}".replace("hopper.warpgroup_mma_wait", "_unwaited")
    path = folder / f"without_{line}.py"
    path.write_text("\n".join([*text, "", "", "def _unwaited(left, deps):", "    return deps[0]", ""]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("line", LINES, ids=[f"{n + 1}: {TEXT[n].strip()[:60]}" for n in LINES])
def test_every_wait_and_arrival_is_needed(line: int, tmp_path: Path) -> None:
    module = without(line, tmp_path)
    # A product that is not waited for is no tensor yet: using it is the TypeError or AttributeError.
    wrong = (HazardError, AssertionError, AttributeError, TypeError)
    assert any(_fails(module, seed, wrong) for seed in range(8)), f"nothing goes wrong without {TEXT[line].strip()}"


def _fails(module: types.ModuleType, seed: int, wrong: tuple[type[Exception], ...]) -> bool:
    try:
        assert_right(errors((1, 2, 1, 512, 620, 64), True, seed, 1, module, KEYS=2, VALUES=2))
    except wrong:
        return True
    return False


def test_without_a_turn_passed_on_all_wait_for_ever(tmp_path: Path) -> None:
    (line,) = (n for n, text in enumerate(TEXT) if "arrive(turns.index((GROUP" in text)
    with pytest.raises(HazardError, match="deadlock"):
        errors((1, 1, 1, 256, 256, 64), False, 0, 1, without(line, tmp_path), TURNS=True)
