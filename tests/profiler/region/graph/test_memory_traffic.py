"""Bytes by hand: what each operation, the fused kernels and the ideal kernel read and write, arithmetic written out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from profiler.region.graph.cost import cost
from profiler.region.graph.cost_model import Cost
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

M = 1024 * 512  # elements of most tensors below
ROW = 512


@dataclass(frozen=True)
class Case:
    """(read, written) unfused, fused, ideal; None where that is not what the case is about."""

    text: str
    unfused: tuple[int, int]
    fused: tuple[int, int] | None = None
    ideal: tuple[int, int] | None = None


CASES = {
    "a view costs nothing": Case(
        "x: f32[1024, 512]\nreturn x.t().reshape(512, 2, 512)[:, 0] + 1.0\n",
        (M // 2 * 4, M // 2 * 4), (M // 2 * 4, M // 2 * 4), (M // 2 * 4, M // 2 * 4)),
    "a broadcast row is read once": Case(
        "x: f32[1024, 512]\nb: f32[512]\nreturn x + b\n", (M * 4 + ROW * 4, M * 4), None, (M * 4 + ROW * 4, M * 4)),
    "an expanded column is read once": Case(
        "c: f32[1024, 1]\nreturn c.expand(1024, 512) * 2.0\n", (1024 * 4, M * 4), (1024 * 4, M * 4)),
    "the same operand twice is read once": Case(
        "x: f32[1024, 512]\nreturn x * x\n", (M * 4, M * 4)),
    # mul reads x, add reads x and the product; fused and ideal read x once
    "an input that two operations read": Case(
        "x: f32[1024, 512]\nreturn x * 2.0 + x\n", (M * 4 + 2 * M * 4, 2 * M * 4), (M * 4, M * 4), (M * 4, M * 4)),
    "an input that nothing reads": Case(
        "x: f32[1024, 512]\ny: f32[1024, 512]\nreturn x + 1.0\n", (M * 4, M * 4), None, (M * 4, M * 4)),
    # neg reads half, cat reads both halves and writes all, mul and add as they stand; x is read once when fused
    "two halves of one tensor are not one": Case(
        "x: bf16[1024, 512]\nreturn x + torch.cat((-x[:, 256:], x[:, :256]), -1)\n",
        (M // 2 * 2 + M * 2 + 2 * M * 2, M // 2 * 2 + M * 2 + M * 2), (M * 2, M * 2), (M * 2, M * 2)),
    # two views of 1023 rows together are the whole storage, once
    "overlapping views together are their storage": Case(
        "x: f32[1024, 512]\nreturn x[1:] - x[:-1]\n", (M * 4, 1023 * ROW * 4)),
    "windows of one vector": Case(
        "x: f32[1000]\nreturn x.unfold(0, 4, 1).sum(-1)\n", (1000 * 4, 997 * 4)),
    "in place: the input is read and written": Case(
        "x: f32[1024, 512]\ny: f32[1024, 512]\nx.add_(y)\nreturn x\n",
        (2 * M * 4, M * 4), (2 * M * 4, M * 4), (2 * M * 4, M * 4)),
    # two operations in place: each moves it, one kernel moves it once
    "in place twice": Case(
        "x: f32[1024, 512]\nz = x.add_(1.0)\nz = z.mul_(2.0)\nreturn z\n",
        (2 * M * 4, 2 * M * 4), (M * 4, M * 4), (M * 4, M * 4)),
    "in place on a slice": Case(
        "x: f32[1024, 512]\ny: f32[512]\nz = x[0].add_(y)\nreturn z\n", (2 * ROW * 4, ROW * 4), None,
        (2 * ROW * 4, ROW * 4)),
    "copy_ does not read what it overwrites": Case(
        "x: f32[1024, 512]\ny: bf16[1024, 512]\nz = x.copy_(y)\nreturn z\n", (M * 2, M * 4), None, (M * 2, M * 4)),
    "fill_ reads nothing": Case("x: f32[1024, 512]\nz = x.fill_(1.0)\nreturn z\n", (0, M * 4), None, (0, M * 4)),
    "zero_ reads nothing": Case("x: f32[1024, 512]\nz = x.zero_()\nreturn z\n", (0, M * 4), None, (0, M * 4)),
    "rand_like takes the sizes only": Case(
        "x: f32[1024, 512]\nreturn torch.rand_like(x)\n", (0, M * 4), None, (0, M * 4)),
    # an input as it is, and a view of one, move nothing; y is the only result
    "inputs that are returned": Case(
        "x: f32[1024, 512]\ny = x + 1.0\nreturn y, x.t()\n", (M * 4, M * 4), (M * 4, M * 4), (M * 4, M * 4)),
    "both halves of a result": Case(
        "x: f32[1024, 512]\na, b = (x + 1.0).chunk(2, -1)\nreturn a, b\n", (M * 4, M * 4), (M * 4, M * 4),
        (M * 4, M * 4)),
    "a result that is a broadcast": Case(
        "x: f32[512]\nreturn (x + 1.0).expand(1024, 512)\n", (ROW * 4, ROW * 4), None, (ROW * 4, ROW * 4)),
    # values f32 and places i64 of 8 of 512; topk reads all
    "topk": Case(
        "x: f32[1024, 512]\nv, i = torch.topk(x, 8, -1)\nreturn v, i\n", (M * 4, 1024 * 8 * (4 + 8)),
        (M * 4, 1024 * 8 * (4 + 8)), (M * 4, 1024 * 8 * (4 + 8))),
    "sort writes places and values": Case(
        "x: f32[512, 1024]\nv, i = torch.sort(x, -1)\nreturn v\n", (M * 4, M * (4 + 8)), (M * 4, M * (4 + 8)),
        (M * 4, M * 4)),
    "a sort of 512, which Inductor does itself, writes no places that nobody reads": Case(
        "x: f32[1024, 512]\nv, i = torch.sort(x, -1)\nreturn v\n", (M * 4, M * (4 + 8)), (M * 4, M * 4)),
    "var_mean writes two of each row": Case(
        "x: f32[1024, 512]\nv, m = torch.var_mean(x, -1)\nreturn v, m\n", (M * 4, 2 * 1024 * 4),
        (M * 4, 2 * 1024 * 4)),
    # mean and rstd are written by eager's kernel; nobody wants them after fusion
    "layer_norm": Case(
        "x: f32[1024, 512]\nw: f32[512]\nb: f32[512]\nreturn F.layer_norm(x, (512,), w, b)\n",
        (M * 4 + 2 * ROW * 4, M * 4 + 2 * 1024 * 4), (M * 4 + 2 * ROW * 4, M * 4), (M * 4 + 2 * ROW * 4, M * 4)),
    "max in a row keeps its place only if it is asked for": Case(
        "x: f32[1024, 512]\nv, i = torch.max(x, -1)\nreturn v\n", (M * 4, 1024 * (4 + 8)), (M * 4, 1024 * 4),
        (M * 4, 1024 * 4)),
    # eager's dropout keeps its mask, one byte an element; fused it is made again
    "dropout": Case("x: bf16[1024, 512]\nreturn F.dropout(x, 0.1, True)\n", (M * 2, M * 2 + M), (M * 2, M * 2)),
    # 64 rows of 512 out of 1024, their numbers in i64
    "embedding": Case(
        "w: bf16[1024, 512]\ni: i64[64].below(1024)\nreturn embedding(i, w)\n",
        (64 * 8 + 64 * ROW * 2, 64 * ROW * 2), None, (64 * 8 + 64 * ROW * 2, 64 * ROW * 2)),
    # more picks than rows: the table is read once at most
    "a small table": Case(
        "w: f32[4, 8]\ni: i64[1000].below(4)\nreturn w[i]\n", (1000 * 8 + 4 * 8 * 4, 1000 * 8 * 4), None,
        (1000 * 8 + 4 * 8 * 4, 1000 * 8 * 4)),
    "gather from a table of integers": Case(
        "t: i64[1024, 512]\ni: i64[1024, 1].below(512)\nreturn torch.gather(t, 1, i)\n",
        (1024 * 8 + 1024 * 8, 1024 * 8)),
    # index_add makes a copy (all of x read, all written), then reads, adds and writes 64 rows
    "index_add": Case(
        "x: f32[1024, 512]\ni: i64[64].below(1024)\ns: f32[64, 512]\nreturn x.index_add(0, i, s)\n",
        (M * 4 + 64 * 8 + 2 * 64 * ROW * 4, M * 4 + 64 * ROW * 4), None, (M * 4 + 64 * 8 + 64 * ROW * 4, M * 4)),
    "index_add_ moves the rows that it touches": Case(
        "x: f32[1024, 512]\ni: i64[64].below(1024)\ns: f32[64, 512]\nz = x.index_add_(0, i, s)\nreturn z\n",
        (64 * 8 + 2 * 64 * ROW * 4, 64 * ROW * 4), None, (64 * 8 + 2 * 64 * ROW * 4, 64 * ROW * 4)),
    "index_put_ writes rows and reads none of them": Case(
        "x: bf16[1024, 512]\ni: i64[64].below(1024)\ns: bf16[64, 512]\nz = x.index_put_((i,), s)\nreturn z\n",
        (64 * 8 + 64 * ROW * 2, 64 * ROW * 2), None, (64 * 8 + 64 * ROW * 2, 64 * ROW * 2)),
    "index_put_ that accumulates reads them": Case(
        "x: bf16[1024, 512]\ni: i64[64].below(1024)\ns: bf16[64, 512]\nz = x.index_put_((i,), s, True)\nreturn z\n",
        (64 * 8 + 2 * 64 * ROW * 2, 64 * ROW * 2)),
    "scatter along rows": Case(
        "x: f32[1024, 512]\ni: i64[1024, 2].below(512)\ns: f32[1024, 2]\nz = x.scatter_(1, i, s)\nreturn z\n",
        (2048 * 8 + 2048 * 4, 2048 * 4)),
    "cat": Case(
        "x: f32[1024, 512]\ny: f32[24, 512]\nreturn torch.cat((x, y), 0)\n",
        (M * 4 + 24 * ROW * 4, 1048 * ROW * 4), (M * 4 + 24 * ROW * 4, 1048 * ROW * 4)),
    "pad": Case("x: f32[1024, 512]\nreturn F.pad(x, (3, 1))\n", (M * 4, 1024 * 516 * 4)),
    # 8 images of 64 x 30 x 30 from 32 x 32, kernel 3 x 3
    "convolution": Case(
        "x: bf16[8, 64, 32, 32]\nw: bf16[64, 64, 3, 3]\nb: bf16[64]\nreturn F.conv2d(x, w, b)\n",
        (8 * 64 * 1024 * 2 + 64 * 64 * 9 * 2 + 64 * 2, 8 * 64 * 900 * 2)),
    # eager writes the places too, in i64
    "max pooling": Case(
        "x: f32[8, 64, 32, 32]\nreturn F.max_pool2d(x, 2)\n", (8 * 64 * 1024 * 4, 8 * 64 * 256 * (4 + 8)),
        (8 * 64 * 1024 * 4, 8 * 64 * 256 * 4)),
    "average pooling": Case(
        "x: f32[8, 64, 32, 32]\nreturn F.avg_pool2d(x, 2)\n", (8 * 64 * 1024 * 4, 8 * 64 * 256 * 4)),
    "fp8 is a byte": Case(
        "x: bf16[1024, 512]\nreturn x.to(f8e4m3)\n", (M * 2, M), (M * 2, M), (M * 2, M)),
    "a bool mask is a byte": Case(
        "x: bf16[1024, 512]\nm: bool[1024, 512]\nreturn x.masked_fill(m, 0.0)\n", (M * 2 + M, M * 2)),
    # eager writes the numbers and reads them again; a kernel makes them where it needs them
    "arange": Case(
        "x: f32[1024, 512]\nreturn x * torch.arange(512)\n", (ROW * 8 + M * 4, ROW * 8 + M * 4), (M * 4, M * 4),
        (M * 4, M * 4)),
    "a constant of zeros": Case(
        "x: f32[1024, 512]\nreturn torch.maximum(x, torch.zeros(512))\n", (ROW * 4 + M * 4, ROW * 4 + M * 4),
        (M * 4, M * 4)),
    # read (row, class) of 64, one weight each; the mean is one number, with the weight's sum
    "cross entropy": Case(
        "x: f32[64, 512]\nt: i64[64].below(512)\nreturn F.cross_entropy(x, t)\n",
        (64 * ROW * 4 + 64 * 8 + 64 * 4, 64 * ROW * 4 + 4 + 4), None, (64 * ROW * 4 + 64 * 8, 4)),
    "attention reads q, k, v and writes one": Case(
        "q: bf16[2, 4, 128, 64]\nk: bf16[2, 4, 128, 64]\nv: bf16[2, 4, 128, 64]\n"
        "return F.scaled_dot_product_attention(q, k, v)\n",
        (3 * 2 * 4 * 128 * 64 * 2, 2 * 4 * 128 * 64 * 2)),
}  # fmt: skip


def counted(text: str) -> Cost:
    return cost(lower(parse(text)))


@pytest.mark.parametrize("name", CASES)
def test_bytes_equal_the_hand_count(name: str) -> None:
    case, found = CASES[name], counted(CASES[name].text)
    wanted = {"unfused": case.unfused, "fused": case.fused, "ideal": case.ideal}
    given = {
        k: (getattr(found, k).bytes_read, getattr(found, k).bytes_written) for k, v in wanted.items() if v is not None
    }
    assert given == {k: v for k, v in wanted.items() if v is not None}


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_moves_less_than_the_ideal_one_and_fusion_never_adds(name: str) -> None:
    region_cost = counted(CASES[name].text)
    assert region_cost.ideal.bytes_moved <= region_cost.fused.bytes_moved <= region_cost.unfused.bytes_moved
