"""Attention with its own scores: a region's text, and apart from it what each score and each mask is, in loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
Given = Mapping[str, Tensor]
Number = Callable[[Given, int, int, int, int], float]
T, H, D, B = 24, 4, 16, 2


@dataclass(frozen=True, slots=True)
class Case:
    """more: inputs besides q, k and v; lines: from the scores s and the positions i to the scores s of the softmax.

    score: what the changed score of (batch, head, row, column) is, as a function of the plain ones' tensor; kept: which
    are not hidden. groups: heads of keys and values. mod, mask: what the functions' code says.
    """

    lines: str
    kept: Callable[[Given, int, int, int, int], bool] = lambda g, b, h, i, j: True
    added: Number = lambda g, b, h, i, j: 0.0
    cap: float = 0.0
    more: str = ""
    groups: int = H
    mod: str = ""
    mask: str = ""
    rows: int = T

    def text(self, dtype: str, grad: bool = False) -> str:
        g = ".requires_grad" if grad else ""
        head = f"q: {dtype}[{B}, {H}, {self.rows}, {D}]{g}\n"
        head += "".join(f"{n}: {dtype}[{B}, {self.groups}, {T}, {D}]{g}\n" for n in "kv")
        repeated = "" if self.groups == H else "".join(
            f"{n} = {n}.repeat_interleave({H // self.groups}, 1)\n" for n in "kv"
        )  # fmt: skip
        more = self.more.replace("DT", dtype).replace("GRAD", g)
        scores = f"s = q @ k.transpose(-1, -2) * 0.3\ni = arange({T})\nr = arange({self.rows})\n"
        lines = self.lines.replace("DT", dtype)
        return f"{head}{more}{repeated}{scores}{lines}return softmax(s, -1).to({dtype}) @ v\n"

    def reference(self, given: Given) -> Tensor:
        """In float64: every mask and every number by loops over all scores."""
        q, k, v = (given[n].double() for n in "qkv")
        each = H // self.groups
        k, v = (torch.stack([t[:, h // each] for h in range(H)], 1) for t in (k, v))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.3
        if self.cap:
            scores = torch.tanh(scores / self.cap) * self.cap
        at = [(b, h, i, j) for b in range(B) for h in range(H) for i in range(self.rows) for j in range(T)]
        plain = {n: t.detach() for n, t in given.items()}
        learned = given.get("table")
        added = torch.tensor([self.added(plain, *p) for p in at], dtype=torch.float64).view(scores.shape)
        if learned is not None:
            rows = torch.tensor([i - j + T - 1 for _, _, i, j in at])
            added = learned.double()[rows, torch.tensor([p[1] for p in at])].view(scores.shape)
        kept = torch.tensor([self.kept(plain, *p) for p in at]).view(scores.shape)
        return torch.softmax((scores + added).masked_fill(~kept, -math.inf), -1) @ v


CAUSAL = "s = s.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), float('-inf'))\n"
WINDOW = "s = torch.where((i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 7), s, float('-inf'))\n"
CAP = "s = 3.0 * tanh(s / 3.0)\n"


def past(g: Given, b: int, h: int, i: int, j: int) -> bool:
    return j <= i


def near_past(g: Given, b: int, h: int, i: int, j: int) -> bool:
    return i - 7 < j <= i


def slope(g: Given, b: int, h: int, i: int, j: int) -> float:
    return 2.0 ** (-2 * (h + 1)) * (j - i)


CASES: Mapping[str, Case] = {
    "scale alone": Case(""),
    "causal": Case(CAUSAL, past, mask="q_idx >= kv_idx"),
    "cap": Case(CAP, cap=3.0, mod="3 * torch.tanh(score / 3)"),
    "cap, causal": Case(CAP + CAUSAL, past, cap=3.0, mod="3 * torch.tanh(score / 3)", mask="q_idx >= kv_idx"),
    "window": Case(WINDOW, near_past, mask="(q_idx >= kv_idx) & (kv_idx >= q_idx - 6)"),
    "Gemma: cap, window": Case(CAP + WINDOW.replace("float('-inf')", "-3.0e38"), near_past, cap=3.0,
                               mod="3 * torch.tanh(score / 3)", mask="(q_idx >= kv_idx) & (kv_idx >= q_idx - 6)"),
    "two-sided window, added": Case(
        "s = s + torch.where((i[:, None] - i[None, :]).abs() <= 5, 0.0, float('-inf'))\n",
        lambda g, b, h, i, j: abs(i - j) <= 5, mask="torch.abs(q_idx - kv_idx) <= 5",
    ),
    "ALiBi": Case("m = torch.exp2(-8.0 * (arange(4) + 1) / 4).to(DT)\n"
                  "s = s + m[:, None, None] * (i[None, :] - i[:, None])\n" + CAUSAL, past, slope),
    "ALiBi with given slopes": Case(
        "s = s + (m.view(4, 1, 1) * (i[None, :] - i[:, None])).to(DT)\n" + CAUSAL, past,
        lambda g, b, h, i, j: float(g["m"][h]) * (j - i), more="m: f32[4]\n",
        mod="score + m[h] * (kv_idx - q_idx)", mask="q_idx >= kv_idx",
    ),
    "prefix": Case("s = s.masked_fill(~((i[None, :] <= i[:, None]) | (i[None, :] < 9)), float('-inf'))\n",
                   lambda g, b, h, i, j: j <= i or j < 9, mask="(q_idx >= kv_idx) | (kv_idx <= 8)"),
    "prefix by sequence": Case(
        "s = s.masked_fill(~((i[None, :] <= i[:, None]) | (i < n[:, None, None, None])), float('-inf'))\n",
        lambda g, b, h, i, j: j <= i or j < int(g["n"][b]), more="n: i64[2].below(20)\n",
        mask="(q_idx >= kv_idx) | (n[b] > kv_idx)",
    ),
    "documents": Case(
        "same = d[:, None, :, None] == d[:, None, None, :]\n"
        "s = s.masked_fill(~(same & (i[:, None] >= i[None, :])), float('-inf'))\n",
        lambda g, b, h, i, j: j <= i and bool(g["d"][b, i] == g["d"][b, j]), more="d: i64[2, 24].below(4)\n",
        mask="(d[b, q_idx] == d[b, kv_idx]) & (q_idx >= kv_idx)",
    ),
    "padding": Case("s = s.masked_fill(~p[:, None, None, :], float('-inf'))\n",
                    lambda g, b, h, i, j: bool(g["p"][b, j]), more="p: bool[2, 24]\n", mask="p[b, kv_idx]"),
    "blocks of a head": Case(
        "near = (i[:, None] // 8) == (i[None, :] // 8)\neven = (arange(4) % 2 == 0)[:, None, None]\n"
        "s = s.masked_fill(~(near | even), float('-inf'))\n",
        lambda g, b, h, i, j: i // 8 == j // 8 or h % 2 == 0,
    ),
    "stored mask": Case("s = s.masked_fill(hidden, -1e9)\n", lambda g, b, h, i, j: not g["hidden"][i, j],
                        more="hidden: bool[24, 24]\n", mod='torch.where(hidden[q_idx, kv_idx], -1000000000, score)'),
    "bias": Case("s = s + e\n", added=lambda g, b, h, i, j: float(g["e"][h, i, j]), more="e: DT[4, 24, 24]\n",
                 mod="score + e[h, q_idx, kv_idx]"),
    "relative bias, learned": Case("s = s + table[i[:, None] - i[None, :] + 23].permute(2, 0, 1)\n",
                                   more="table: DT[47, 4]GRAD\n", mod="score + table[q_idx - kv_idx + 23, h]"),
    "grouped, causal": Case(CAUSAL, past, groups=2, mask="q_idx >= kv_idx"),
    "grouped, cap and slopes": Case(
        CAP + "s = s + m[:, None, None] * (i[None, :] - i[:, None])\n", added=lambda g, b, h, i, j: float(
            g["m"][h]) * (j - i), cap=3.0, more="m: DT[4]\n", groups=1,
    ),
    "decoding": Case("s = s.masked_fill(i[None, :] < 10, float('-inf'))\n", lambda g, b, h, i, j: j >= 10, groups=2,
                     rows=1, mask="kv_idx >= 10"),
    "decoding with a cap": Case(CAP, cap=3.0, groups=2, rows=1, mod="3 * torch.tanh(score / 3)"),
    "last rows of a causal order": Case(
        "s = s.masked_fill(i[None, :] > r[:, None] + 16, float('-inf'))\n", lambda g, b, h, i, j: j <= i + 16, rows=8,
        mask="q_idx >= kv_idx - 16",
    ),
    "mask in front of the cap": Case(  # a hidden score is then -3, and not out of the softmax
        "s = s.masked_fill(i[None, :] > i[:, None], float('-inf'))\n" + CAP,
        added=lambda g, b, h, i, j: 0.0, cap=3.0,
    ),
}  # fmt: skip
BY_ITSELF = "mask in front of the cap"
"""Its reference is another: see the test."""
