"""Indices are right by what they select: a tie has several, and none of them is wrong."""

from __future__ import annotations

import pytest
import torch

from kernels.agreement import pointed
from kernels.starter_kit.runtime import disagreements
from kernels.starter_kit.selecting import selected
from profiler.region.language.text import parse, to_text

LOGITS = "l: bf16[16, 8]\n"


@pytest.mark.parametrize(("text", "dims", "returned"), [
    (LOGITS + "p = torch.softmax(l.float(), -1)\nw, i = torch.topk(p, 2, -1)\nreturn w / w.sum(-1, keepdim=True), i\n",
     {1: -1}, "p,"),
    (LOGITS + "i = l.argmax(0)\nreturn i\n", {0: 0}, "l,"),
    (LOGITS + "s, i = torch.sort(l, -1)\nreturn i, s\n", {0: -1}, "l,"),
    (LOGITS + "return torch.argmin(l, 1)\n", {0: 1}, "l,"),
    # What is selected from has no name, or another value by the end: such an output is compared as it is.
    (LOGITS + "i = (l * 2).argmax(-1)\nreturn i\n", {}, None),
    (LOGITS + "p = l * 2\ni = p.argmax(-1)\np = p + 1\nreturn i, p\n", {}, None),
    (LOGITS + "return l * 2\n", {}, None),
])  # fmt: skip
def test_what_indices_point_into_is_found_in_the_text(text: str, dims: dict[int, int], returned: str | None) -> None:
    found, sources = selected(parse(text), {})
    assert found == dims
    assert (sources is None) == (returned is None)
    if sources is not None:
        assert to_text(sources).splitlines()[-1] == f"return {returned}"
        parse(to_text(sources))


def test_any_index_of_a_tie_is_right_and_a_lesser_value_is_not() -> None:
    source = torch.tensor([[1.0, 3.0, 3.0, 2.0]], dtype=torch.float64)
    into = {0: (source, -1)}
    best, tie, less = (torch.tensor([[n]]) for n in (1, 2, 3))
    assert disagreements(tie, best, best, into=into) == ""
    assert "error" in disagreements(less, best, best, into=into)
    assert "differ" in disagreements(tie, best, best)


def test_an_index_twice_or_out_of_range_is_wrong() -> None:
    source = torch.tensor([[1.0, 3.0, 3.0, 2.0]], dtype=torch.float64)
    right = torch.tensor([[1, 2]])
    for wrong in ([[1, 1]], [[1, 4]], [[-1, 1]]):
        assert pointed(torch.tensor(wrong), source, -1) is None
        assert "twice" in disagreements(torch.tensor(wrong), right, right, into={0: (source, -1)})
