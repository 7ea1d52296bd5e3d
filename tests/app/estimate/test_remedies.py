"""The changed call is the one that a program would make: held to the region's text with the other sizes, lowered."""

from __future__ import annotations

import pytest

from app.estimate import remedies
from app.estimate.rates import FITTED
from profiler.hardware import Device, find_device
from profiler.region import op_kinds
from profiler.region.graph.lowering import lower
from profiler.region.graph.operation import Operation
from profiler.region.language.text import parse
from profiler.region.operations import LIBRARY_KINDS

IMAGES = "x: bf16[16, {c}, 64, 64]{l}\nw: bf16[64, {c}, 3, 3]{l}\nreturn F.conv2d(x, w, padding=1)\n"
HEAD = "x: bf16[8192, 768]\nw: bf16[{n}, 768]\nreturn F.linear(x, w)\n"
INNER = "x: bf16[8192, {n}]\nw: bf16[4096, {n}]\nreturn F.linear(x, w)\n"
SUM = "x: bf16[8192, {n}]\nw: bf16[{n}, 768]\nreturn x @ w\n"
COLUMNS = "x: bf16[8192, 768]\nw: bf16[768, {n}]\nreturn x @ w\n"
GRADIENT = "g: bf16[8192, {n}]\nx: bf16[8192, 768]\nreturn g.t() @ x\n"
SCORES = "q: bf16[128, {n}, 64]\nk: bf16[128, 64, {n}]\nreturn torch.bmm(q, k)\n"
VALUES = "p: bf16[64, {n}, {n}]\nv: bf16[64, {n}, 64]\nreturn torch.bmm(p, v)\n"
PLACES = {
    "rows": (HEAD, GRADIENT), "sum": (SUM,), "both": (INNER,), "columns": (COLUMNS,), "batch": (SCORES, VALUES),
}  # fmt: skip


def calls(text: str) -> tuple[Operation, ...]:
    return tuple(o for o in lower(parse(text)).operations if o.kind in LIBRARY_KINDS)


def alike(one: Operation, other: Operation) -> bool:
    def seen(operation: Operation) -> list[tuple[object, ...]]:
        return [(t.shape, t.stride, t.bytes) for t in (*operation.reads, *operation.writes)]

    return seen(one) == seen(other) and one.flops == other.flops


def device(name: str) -> Device:
    card = find_device(name)
    assert card is not None
    return card


@pytest.mark.parametrize("layout", ["", ".channels_last"])
def test_padded_channels_leave_a_filter_of_3_by_3_as_it_is(layout: str) -> None:
    made = remedies.with_channels(calls(IMAGES.format(c=3, l=layout)), 3, 8)
    copy, convolution = made
    (wanted,) = calls(IMAGES.format(c=8, l=layout))
    assert convolution.reads[1].shape == (64, 8, 3, 3)
    assert alike(convolution, wanted)
    assert (copy.kind, copy.reads[0].shape, copy.writes[0]) == (op_kinds.COPY, (16, 3, 64, 64), convolution.reads[0])


@pytest.mark.parametrize(("where", "text"), [(w, t) for w, texts in PLACES.items() for t in texts])
def test_an_odd_size_is_padded_where_the_product_has_it(where: str, text: str) -> None:
    made = remedies.odd_sizes(calls(text.format(n=2047)))
    assert made == {where: {2047: 2048}}
    (resized,) = remedies.resized(calls(text.format(n=2047)), {2047: 2048})
    (wanted,) = calls(text.format(n=2048))
    assert alike(resized, wanted)


@pytest.mark.parametrize("text", [t for texts in PLACES.values() for t in texts])
def test_whole_rows_of_16_bytes_are_not_padded(text: str) -> None:
    assert remedies.odd_sizes(calls(text.format(n=2048))) == {}


def test_a_batched_product_pays_for_the_copies_of_its_factors() -> None:
    *copies, product = remedies.copied_and_resized(calls(VALUES.format(n=2047)), {2047: 2048})
    assert [c.writes[0] for c in copies] == list(product.reads)
    card = device("H200")
    alone = remedies.price((product,), card, FITTED)
    both = remedies.price((*copies, product), card, FITTED)
    assert alone is not None and both is not None
    read, written = 64 * 2047 * 2047 * 2, 64 * 2048 * 2048 * 2
    assert both.mid - alone.mid > 1e6 * (read + written) / card.memory_rate


def test_no_price_is_read_from_another_vendors_atlas() -> None:
    made = calls(INNER.format(n=1024))
    assert remedies.price(made, device("H100"), FITTED) is not None
    assert remedies.price(made, device("A100"), FITTED) is not None, "scaled, of the same libraries"
    assert remedies.price(made, device("MI300X"), FITTED) is None


@pytest.mark.parametrize(
    ("mask", "causal", "bias"),
    [
        ("m: bf16[512, 512]\nn = m", True, False),
        ("m: bf16[4, 1, 512, 512]\nn = m", True, False),
        ("m: bf16[4, 1, 512, 512]\nn = m.expand([4, 8, 512, 512])", True, False),
        ("m: bf16[4, 8, 512, 512]\nn = m", False, True),
        ("m: bf16[1, 8, 512, 512]\nn = m", False, True),
        ("m: bf16[4, 1, 1, 512]\nn = m", False, False),
    ],
)
def test_a_matrix_for_every_head_is_no_causal_mask(mask: str, causal: bool, bias: bool) -> None:
    declared, line = mask.split("\n")
    inputs = "".join(f"{name}: bf16[4, 8, 512, 64]\n" for name in "qkv")
    (call,) = calls(f"{inputs}{declared}\n{line}\nreturn F.scaled_dot_product_attention(q, k, v, attn_mask=n)\n")
    assert (remedies.has_square_mask(call), remedies.has_bias_of_heads(call)) == (causal, bias)
