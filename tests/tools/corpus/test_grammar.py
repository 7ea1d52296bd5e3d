"""The grammar: the same programs in every run, of every block, in practice's dtypes, of sizes worth measuring."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest

from profiler.region.language.text import parse
from tools.corpus.admission import MAX_BYTES, MIN_BYTES, admit
from tools.corpus.dtypes import SHARES
from tools.corpus.grammar.generate import MAX_DRAWS, QUOTAS, TRAINING, drafts, generated_programs


@pytest.mark.parametrize("block", QUOTAS)
def test_every_block_gives_different_programs_and_the_same_ones_again(block: str) -> None:
    first, again = (list(islice(generated_programs(block), 4)) for _ in range(2))
    assert first == again
    assert len({g.admitted.text for g in first}) == 4
    for item in first:
        assert MIN_BYTES <= item.admitted.bytes_moved <= MAX_BYTES
        assert item.admitted.mode == ("training" if ".requires_grad" in item.admitted.text else "forward")


@pytest.mark.parametrize("block", QUOTAS)
def test_every_input_of_a_draft_is_read(block: str) -> None:
    """An input that nothing reads would be traffic that no candidate has."""
    for _, _, text in islice(drafts(block), 120):
        region = parse(text)
        for item in region.inputs:
            assert len(re.findall(rf"\b{item.name}\b", text)) > 1, (item.name, text)


def test_dtypes_and_training_come_in_their_shares() -> None:
    drawn = [item for block in ("matmul", "norm") for item in islice(drafts(block), 400)]
    counts = Counter(dtype for _, dtype, _ in drawn)
    for dtype, share in SHARES.items():
        assert abs(counts[dtype] / len(drawn) - share) < 0.05
    training = sum(".requires_grad" in text for *_, text in drawn)
    assert abs(training / len(drawn) - TRAINING) < 0.05


def test_under_autocast_products_are_of_bf16_and_what_is_stored_is_f32() -> None:
    texts = [text for _, dtype, text in islice(drafts("matmul"), 300) if dtype == "autocast"]
    assert len(texts) > 10
    for text in texts:
        assert not any(": bf16[" in line for line in text.splitlines())
        assert ".to(bf16)" in text


def test_the_quotas_make_about_250_and_leave_room_to_draw() -> None:
    assert 240 <= sum(count for _, count in QUOTAS.values()) <= 280
    assert all(10 * count <= MAX_DRAWS for _, count in QUOTAS.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x: f32[64]\nreturn relu(x)\n", "moves a few bytes"),
        ("x: f32[65536, 65536]\nreturn relu(x)\n", "moves more than is measured"),
        ("x: f32[4096, 4096]\nreturn x.t().contiguous()\n", "copies"),
        ("x: f32[16384, 16384]\nw: f32[16384, 16384]\nreturn x @ w @ w\n", "computes for too long"),
    ],
)
def test_what_is_not_worth_measuring_is_not_admitted(text: str, why: str) -> None:
    assert admit(text) is None, why


def test_what_is_admitted_is_counted() -> None:
    admitted = admit("x: f32[1024, 1024]\nreturn relu(x)\n")
    assert admitted is not None
    assert (admitted.bytes_moved, admitted.flops) == (8 * 1024 * 1024, 1024 * 1024)
