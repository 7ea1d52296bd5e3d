"""A model in many ways of writing Python, whose lines are to be told by what it calls: `test_source_lines` runs it."""

from __future__ import annotations

import math
from functools import wraps

import torch
from torch import nn
from torch.nn import functional as F


def logged(function):
    """A decorator, as libraries put around `forward`."""

    @wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def rotate(x):
    """Halves swapped; "x[0] * (y" in a string is no code."""
    first, second = x.chunk(2, -1)  # x * y in a comment neither
    return torch.cat((-second, first), dim=-1)


def rotary(q, cos, sin):
    return (q * cos) + (rotate(q) * sin)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    @logged
    def forward(self, x):
        variance = (
            x.float()
            .pow(2)
            .mean(
                -1,
                keepdim=True,
            )
        )
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.q = nn.Linear(size, size, bias=False)
        self.k, self.v = nn.Linear(size, size), nn.Linear(size, size)
        self.out = nn.Linear(
            size,
            size,
        )

    def forward(self, x, cos, sin):
        q = rotary(self.q(x), cos, sin)
        k = rotary(self.k(x), cos, sin)
        v = self.v(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        weights = scores.softmax(-1)
        return self.out(weights @ v)


class Gated(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size, 2 * size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def forward(self, x):
        gate = F.silu(self.gate(x))
        up = self.up(x)
        return self.down(gate * up)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.before = Norm(size)
        self.after = Norm(size)
        self.attention = Attention(size)
        self.gated = Gated(size)
        self.tail = nn.Sequential(nn.Linear(size, size), nn.GELU())

    def forward(self, x, cos, sin, *, scale=2 * 0.5):
        residual = x
        x = self.before(x)
        x = residual + self.attention(x, cos, sin)
        residual = x
        x = self.gated(self.after(x))
        if scale > 10.0:
            x = x / scale
        x = x + residual
        for turn in range(2):
            x = torch.tanh(x)
            if turn:
                x = torch.sigmoid(x)
        x += 1.0
        return self.tail(x)


class Model(nn.Module):
    def __init__(self, size, layers):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(layers))
        self.head = nn.Linear(size, 8)

    def forward(self, x):
        angles = torch.outer(torch.arange(x.shape[1]).float(), torch.ones(x.shape[2]))
        cos, sin = angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        x = 1.0 / (x.abs() + 1.0)
        parts = [part.exp() for part in x.split(4, dim=1)]
        x = torch.cat(parts, dim=1)
        return self.head(x)


def step(model, x):
    with torch.no_grad():
        return model(x)
