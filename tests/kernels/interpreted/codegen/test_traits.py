"""Traits of generated kernels: counted by hand, and of the kernels that a call launches."""

from __future__ import annotations

import pytest
import torch

from kernels.calibrate.kernel_bench import _launched
from kernels.codegen.generated import generate, made
from kernels.codegen.traits_model import GeneratedTraits
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse


def traits(text: str) -> list[GeneratedTraits]:
    found = [s.traits for s in made(lower(parse(text))).sources]
    assert all(t is not None for t in found)
    return [t for t in found if t is not None]


def test_an_added_row_is_read_once_for_all_rows() -> None:
    (one,) = traits("x: f32[64, 256]\nw: f32[256]\nreturn relu(x + w)")
    assert (one.rows, one.columns, one.form) == (64, 256, "tile")
    assert (one.bytes_read, one.bytes_written, one.bytes_moved) == (66_560, 65_536, 132_096)
    assert (
        one.bytes_asked == 66_560
        and one.ordered == one.scanned == one.places == 0
        and (one.loads, one.full_loads, one.stores) == (2, 1, 1)
    )
    assert one.broken_bytes == 0 and one.item_bytes == 4 and not one.special


def test_a_sum_over_the_first_axis_walks_across_rows() -> None:
    (one,) = traits("x: f16[48, 256]\nreturn x.sum(0)")
    assert one.strided and one.reductions == 1 and (one.rows, one.columns) == (256, 48)
    assert one.bytes_read == 2 * 48 * 256 and one.bytes_written == 512 and one.item_bytes == 2


@pytest.mark.parametrize(("tail", "passes"), [("return x.square().sum(-1)", 1), ("return softmax(x, -1)", 2)])
def test_a_long_row_is_walked_once_more_where_its_columns_are_stored(tail: str, passes: int) -> None:
    (one,) = traits(f"x: f32[4, 100000]\n{tail}")
    assert one.form == "loop" and one.passes == passes


def test_a_transposed_input_does_not_lie_in_a_row() -> None:
    plain, turned = (traits(f"x: f32[512, 256]{s}\nreturn gelu(x)")[0] for s in ("", ".strides(1, 512)"))
    assert plain.broken_bytes == 0 and plain.special == plain.heavy == 512 * 256
    mixed = traits("x: f32[512, 256]\ny: f32[512, 256].strides(1, 512)\nreturn x + y")[0]
    assert mixed.broken_bytes == 0 == turned.broken_bytes, "each has a dimension along which its elements lie in a row"


def test_additions_to_places_count_what_is_copied_before() -> None:
    (one,) = traits("t: f32[100, 64]\ni: i64[500].below(100)\nx: f32[500, 64]\nreturn t.index_add(0, i, relu(x))")
    assert one.bytes_added == 4 * 500 * 64 and one.bytes_started == 2 * 4 * 100 * 64
    assert one.placed_bytes == 0 and one.bytes_read == 4 * 500 * 64 + 8 * 500, "the table is counted as copied"


def test_of_a_table_no_more_is_read_than_is_loaded() -> None:
    (one,) = traits("t: f32[100000, 64]\ni: i64[500].below(100000)\nreturn relu(t[i])")
    assert one.bytes_read == 4 * 500 * 64 + 8 * 500 and one.placed_bytes == 4 * 500 * 64


def test_a_lane_loads_what_differs_along_some_of_its_rows_dimensions() -> None:
    """x is read by each lane again: its memory is small, and its loads are as many as the result has elements."""
    (one,) = traits("x: f32[64, 1, 8]\ny: f32[1, 32, 8]\nreturn (x * y).sum(-1)")
    assert one.bytes_read == 4 * (64 * 8 + 32 * 8) and one.bytes_asked == 2 * 4 * 64 * 32 * 8


def test_scans_orders_and_places_tell_their_steps() -> None:
    (scan,) = traits("x: f32[64, 256]\nreturn x.logcumsumexp(-1)")
    assert scan.scanned == 64 * 256 * 8 and scan.special >= scan.scanned
    (order,) = traits("x: f32[64, 256]\nreturn relu(x).sort(-1)[0]")
    assert order.sorts == 1 and order.ordered == 64 * 256 * 8 * 9 // 2
    (place,) = traits("x: f32[64, 256]\nreturn x.argmax(-1)")
    assert place.places == 1


def test_a_product_has_its_sizes_and_work() -> None:
    found = traits("x: f16[128, 64]\nw: f16[96, 64]\nreturn gelu(F.linear(relu(x), w))")
    one = next(t for t in found if t.flops)
    assert (one.form, one.rows, one.columns, one.inner) == ("product", 128, 96, 64)
    assert one.flops == 2 * 128 * 96 * 64 and one.dtype == "f16"


def test_the_launches_of_a_call_are_seen_with_their_arguments() -> None:
    graph = lower(parse("x: f32[8, 32]\ny = softmax(x, -1)\nreturn y, y.sum(0)"), None, "cpu")
    kernels = generate(graph)
    x = torch.randn(8, 32)
    seen = _launched(lambda *values: kernels.module(*values), [x])
    assert [kernel.source.kernel for kernel, _ in seen] == [s.kernel for s in kernels.sources]
    kernel, given = seen[0]
    assert torch.allclose(kernel(*given)[0], torch.softmax(x, -1), atol=1e-6)
