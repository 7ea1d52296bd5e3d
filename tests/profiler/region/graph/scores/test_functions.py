"""What is told of attention with its own scores: which operations are its own, what a mask keeps, how it is named."""

from __future__ import annotations

import pytest
import torch

from profiler.region import op_kinds
from profiler.region.graph.lowering import lower
from profiler.region.graph.match_model import Match
from profiler.region.graph.patterns import match, region_kind
from profiler.region.graph.scores.functions import matches, sizes_of
from profiler.region.graph.scores.masks import Sizes, hides_rows, kept_share
from profiler.region.language.text import parse

QKV = "q: f32[2, 4, 64, 16]\nk: f32[2, 4, 64, 16]\nv: f32[2, 4, 64, 16]\n"
SCORES = "s = q @ k.transpose(-1, -2) * 0.25\ni = arange(64)\n"
END = "return softmax(s, -1) @ v\n"
WINDOW = "s = torch.where((i[:, None] - i[None, :]).abs() < 9, s, float('-inf'))\n"


def only(text: str) -> Match:
    (one,) = matches(lower(parse(text)))
    return one


def test_what_makes_the_mask_is_covered_and_what_others_read_is_not() -> None:
    graph = lower(parse(QKV + SCORES + WINDOW + END))
    (one,) = matches(graph)
    working = {o.name for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)}
    assert working <= one.operations
    text = QKV + SCORES + "near = (i[:, None] - i[None, :]).abs() < 9\ns = torch.where(near, s, float('-inf'))\n"
    shared = lower(parse(text + "return softmax(s, -1) @ v, near\n"))
    (one,) = matches(shared)
    assert {"abs_1", "lt", "sub"}.isdisjoint(one.operations)
    assert {"bmm", "_softmax", "bmm_1"} <= one.operations


@pytest.mark.parametrize("returned", ["softmax(s, -1) @ v, s", "softmax(s, -1) @ v, softmax(s, -1)"])
def test_scores_that_are_returned_stay_computed(returned: str) -> None:
    assert not matches(lower(parse(QKV + SCORES + WINDOW + f"return {returned}\n")))


def test_a_score_that_no_form_names_is_named_attention_and_covers_the_region() -> None:
    text = QKV + SCORES + "s = s * torch.sigmoid(s)\n" + WINDOW + END
    graph = lower(parse(text))
    found_here = match(graph)
    assert [m.kind for m in found_here] == ["scored_attention"]
    assert region_kind(graph, found_here) == ("scored_attention", "attention with its own scores by hand")


def test_hundreds_of_operations_on_a_score_are_no_function_of_it() -> None:
    lines = "".join("s = torch.sigmoid(s) + 1.5\n" for _ in range(450))
    assert not matches(lower(parse(QKV + SCORES + lines + END)))


def test_a_mask_that_is_a_long_time_in_the_making_is_read() -> None:
    """What is computed of a tensor before it hides scores stays as it is, however much that is."""
    made = "m = e\n" + "".join("m = torch.sigmoid(m) - 0.6\n" for _ in range(450))
    text = QKV + "e: f32[64, 64]\n" + SCORES + made + "s = s + m\n" + END
    (one,) = matches(lower(parse(text)))
    score = str(one.roles["score"])
    assert "tensor0[q_idx, kv_idx]" in score
    assert score.count("sigmoid") < 5


def test_what_makes_its_mask_is_no_part_of_an_attentions_name() -> None:
    graph = lower(parse(QKV + SCORES + "s = 9.0 * tanh(s / 9.0)\n" + WINDOW + END))
    assert region_kind(graph, match(graph))[1] == "attention with a soft cap by hand"
    more = lower(parse(QKV + SCORES + WINDOW + "return (softmax(s, -1) @ v).exp()\n"))
    assert region_kind(more, match(more))[1] == "attention by hand with exp"


MASKS = {
    "window": ("(q_idx >= kv_idx) & (kv_idx >= q_idx - 99)", lambda i, j: (i >= j) & (i - j < 100)),
    "prefix": ("(q_idx >= kv_idx) | (kv_idx <= 40)", lambda i, j: (i >= j) | (j <= 40)),
    "blocks": ("q_idx // 64 == kv_idx // 64", lambda i, j: i // 64 == j // 64),
}


@pytest.mark.parametrize("rows", [300, 1500])
@pytest.mark.parametrize("name", MASKS)
def test_the_share_that_a_mask_keeps_is_that_of_all_scores(name: str, rows: int) -> None:
    code, kept = MASKS[name]
    sizes = Sizes(2, 4, 4, rows, rows)
    i, j = torch.arange(rows)[:, None], torch.arange(rows)[None, :]
    whole = kept(i, j)
    assert kept_share(code, sizes) == pytest.approx(whole.float().mean().item(), rel=0.02)
    spare = -rows % 128
    padded = torch.nn.functional.pad(whole, (0, spare, 0, spare))
    blocks = padded.view(padded.shape[0] // 128, 128, -1, 128).any(3).any(1).float().mean().item()
    assert kept_share(code, sizes, 128) == pytest.approx(blocks, rel=0.02)


def test_a_mask_by_head_is_counted_over_heads() -> None:
    assert kept_share("(kv_idx <= q_idx) | (h % 2 == 0)", Sizes(1, 4, 4, 200, 200)) == pytest.approx(0.75, abs=0.01)


def test_a_row_that_is_hidden_as_a_whole_is_seen_wherever_it_is() -> None:
    sizes = Sizes(1, 1, 1, 5000, 5000)
    assert hides_rows("q_idx > kv_idx", sizes)
    assert hides_rows("kv_idx >= q_idx + 1", sizes)
    assert not hides_rows("q_idx >= kv_idx", sizes)


def test_sizes_are_those_of_heads_however_they_are_folded() -> None:
    folded = (
        "q: f32[8, 64, 16]\nk: f32[8, 64, 16]\nv: f32[8, 64, 16]\nm: f32[2, 1, 64, 64]\n"
        "s = torch.bmm(q, k.transpose(1, 2)).view(2, 4, 64, 64) * 0.25 + m\n"
        "return torch.bmm(softmax(s, -1).view(8, 64, 64), v)\n"
    )
    one = only(folded)
    assert sizes_of(one) == Sizes(2, 4, 4, 64, 64)
    assert one.roles["score"] == "score + tensor0[b, q_idx, kv_idx]"
