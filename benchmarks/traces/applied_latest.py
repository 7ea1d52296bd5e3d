"""Models that no run had before, of other architectures than those of `applied_later`: predicted before they are
measured (tests/records/applied-predicted-h200.json).

Each takes (small, device) as those of `applied_models` do, and is made of torch and transformers alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.traces.applied_models import Made, inferred, next_tokens, one_token, trained


def pythia_training(small: bool, device: str) -> Made:
    """GPT-NeoX (attention and network next to each other, a quarter of each head turned, LayerNorm, biases) in
    training, 8 sequences of 1,024, bf16, AdamW."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    wide = 128 if small else 1280
    config = GPTNeoXConfig(
        vocab_size=512 if small else 50304, hidden_size=wide, intermediate_size=4 * wide,
        num_hidden_layers=2 if small else 12, num_attention_heads=wide // 64, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    tokens = torch.randint(0, 512, (2, 64) if small else (8, 1024), device=device)
    return next_tokens(model, tokens)


def qwen_decoding(small: bool, device: str) -> Made:
    """One token of 16 sequences of Qwen 3 (queries and keys are normed, heads wider than the model's share), static
    cache of 1,024, bf16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    wide = 128 if small else 2048
    config = Qwen3Config(
        vocab_size=512 if small else 65536, hidden_size=wide, intermediate_size=3 * wide,
        num_hidden_layers=2 if small else 16, num_attention_heads=4 if small else 16, num_key_value_heads=2 if small
        else 8, head_dim=64 if small else 128, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()
    return one_token(model, 16, small, device)


def mobilenet_training(small: bool, device: str) -> Made:
    """MobileNet V2 (depthwise convolutions between narrow layers, ReLU6) in training, 192 images, f32, SGD."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    torch.manual_seed(0)
    config = MobileNetV2Config(num_labels=1000, tf_padding=False, depth_multiplier=0.5 if small else 1.4)
    model = MobileNetV2ForImageClassification(config).to(device)
    side, many = (64, 2) if small else (224, 192)
    images = torch.randn(many, 3, side, side, device=device)
    labels = torch.randint(0, 1000, (many,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(pixel_values=images).logits, labels))


class SingleStreamBlock(nn.Module):
    """Attention and network next to each other, made by one projection and taken in by one (Black Forest Labs' Flux):
    queries and keys are normed and turned by their position."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.wide, self.heads = wide, heads
        self.norm = nn.LayerNorm(wide, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(wide, 3 * wide)
        self.into, self.out = nn.Linear(wide, 7 * wide), nn.Linear(5 * wide, wide)
        self.of_queries, self.of_keys = nn.RMSNorm(wide // heads), nn.RMSNorm(wide // heads)

    def forward(self, x: torch.Tensor, moment: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; moment: [B, D]; angles: [T, D / H / 2]."""
        shift, scale, gate = self.modulation(nn.functional.silu(moment))[:, None].chunk(3, -1)
        mixed, hidden = self.into(self.norm(x) * (1 + scale) + shift).split([3 * self.wide, 4 * self.wide], -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in mixed.chunk(3, -1))
        q, k = turned(self.of_queries(q), angles), turned(self.of_keys(k), angles)
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        both = torch.cat([attended, nn.functional.gelu(hidden, approximate="tanh")], -1)
        made: torch.Tensor = x + gate * self.out(both)
        return made


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbours turned by their position's angles, in f32. x: [B, H, T, D]; angles: [T, D / 2]."""
    even, odd = x.float().view(*x.shape[:-1], -1, 2).unbind(-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2).type_as(x)


class SingleStream(nn.Module):
    """Blocks one after another."""

    def __init__(self, wide: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SingleStreamBlock(wide, heads) for _ in range(depth))

    def forward(self, x: torch.Tensor, moment: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; moment: [B, D]; angles: [T, D / H / 2]."""
        for block in self.blocks:
            x = block(x, moment, angles)
        return x


def single_stream(small: bool, device: str) -> Made:
    """A step of sampling by a diffusion transformer of one stream, 4,608 tokens of one image and its text, bf16."""
    torch.manual_seed(0)
    wide, tokens, head = (128, 48, 64) if small else (3072, 4608, 128)
    model = SingleStream(wide, wide // head, 2 if small else 6).to(device, torch.bfloat16).eval()
    x, moment = (torch.randn(*shape, device=device, dtype=torch.bfloat16) for shape in ((1, tokens, wide), (1, wide)))
    return model, inferred(x, moment, torch.rand(tokens, head // 2, device=device))


class InterestNetwork(nn.Module):
    """What a user had before, weighed by how it goes with the item that is asked about (Zhou et al. 2018)."""

    def __init__(self, items: int, kinds: int, wide: int) -> None:
        super().__init__()
        self.items, self.kinds = nn.Embedding(items, wide), nn.Embedding(kinds, wide)
        both = 2 * wide
        self.unit = nn.Sequential(nn.Linear(4 * both, 80), nn.PReLU(), nn.Linear(80, 40), nn.PReLU(), nn.Linear(40, 1))
        self.deep = nn.Sequential(
            nn.Linear(2 * both + 16, 512), nn.BatchNorm1d(512), nn.PReLU(),
            nn.Linear(512, 256), nn.BatchNorm1d(256), nn.PReLU(), nn.Linear(256, 1),
        )  # fmt: skip

    def forward(
        self, profile: torch.Tensor, item: torch.Tensor, past: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """profile: [B, 16]; item: [2, B], what it is and its kind; past: [2, B, T]; lengths: [B]."""
        asked = torch.cat([self.items(item[0]), self.kinds(item[1])], -1)
        had = torch.cat([self.items(past[0]), self.kinds(past[1])], -1)
        other = asked[:, None].expand_as(had)
        weights = self.unit(torch.cat([other, had, other - had, other * had], -1))[..., 0]
        inside = torch.arange(past.shape[-1], device=past.device) < lengths[:, None]
        pooled = ((weights * inside)[..., None] * had).sum(1)
        made: torch.Tensor = self.deep(torch.cat([asked, pooled, profile], -1))[:, 0]
        return made


def interest_network(small: bool, device: str) -> Made:
    """A recommender by attention to what was clicked before in training, 8,192 examples of 64 clicks, f32, Adam."""
    torch.manual_seed(0)
    batch, items, kinds, wide, clicks = (32, 100, 10, 8, 5) if small else (8192, 200_000, 2_000, 32, 64)
    model = InterestNetwork(items, kinds, wide).to(device)
    profile, labels = torch.randn(batch, 16, device=device), torch.rand(batch, device=device).round()
    item = torch.stack([torch.randint(0, n, (batch,), device=device) for n in (items, kinds)])
    past = torch.stack([torch.randint(0, n, (batch, clicks), device=device) for n in (items, kinds)])
    lengths = torch.randint(1, clicks + 1, (batch,), device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(
        model, optimizer,
        lambda m: nn.functional.binary_cross_entropy_with_logits(m(profile, item, past, lengths), labels),
    )  # fmt: skip


LATEST: dict[str, Callable[[bool, str], Made]] = {
    "pythia training": pythia_training, "qwen decoding": qwen_decoding, "mobilenet training": mobilenet_training,
    "single stream sampling": single_stream, "interest network training": interest_network,
}  # fmt: skip
"""Nothing was chosen by these, and no run had them when they were predicted."""
