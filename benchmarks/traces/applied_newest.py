"""Models that no run had before, of other architectures than those of `applied_later` and `applied_latest`: predicted
before they are measured (tests/records/applied-predicted-h200.json).

Each takes (small, device) as those of `applied_models` do, and is made of torch and transformers alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.traces.applied_models import Made, inferred, next_tokens, one_token, trained


def cohere_training(small: bool, device: str) -> Made:
    """Command R (one norm without a bias before attention and a gated network next to each other, neighbours turned,
    logits scaled, the embedding is the head) in training, 4 sequences of 2,048, bf16, AdamW."""
    from transformers import CohereConfig, CohereForCausalLM

    wide = 128 if small else 2048
    config = CohereConfig(
        vocab_size=512 if small else 32768, hidden_size=wide, intermediate_size=3 * wide,
        num_hidden_layers=2 if small else 10, num_attention_heads=wide // 64, num_key_value_heads=wide // 128,
        max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = CohereForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    tokens = torch.randint(3, 512, (2, 64) if small else (4, 2048), device=device)
    return next_tokens(model, tokens)


def gemma_decoding(small: bool, device: str) -> Made:
    """One token of 8 sequences of Gemma (one head of keys, heads of 256, gates by GELU, norms by one more than their
    weight, the embedding is the head), static cache of 1,024, bf16."""
    from transformers import GemmaConfig, GemmaForCausalLM

    wide = 128 if small else 2048
    config = GemmaConfig(
        vocab_size=512 if small else 65536, hidden_size=wide, intermediate_size=8 * wide,
        num_hidden_layers=2 if small else 18, num_attention_heads=2 if small else 8, num_key_value_heads=1,
        head_dim=64 if small else 256, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GemmaForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()
    return one_token(model, 8, small, device)


class BranchedConvolution(nn.Module):
    """Windows of 3x3 and 1x1 and, where the image stays as it is, itself, each normed, summed (Ding et al. 2021)."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made))
        self.point = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))
        self.same = nn.BatchNorm2d(made) if given == made and stride == 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, C, H, W]."""
        both = self.wide(x) + self.point(x)
        return nn.functional.relu(both if self.same is None else both + self.same(x))


def repvgg_training(small: bool, device: str) -> Made:
    """RepVGG (three branches a layer, no other paths) in training, 96 images, f32, SGD with momentum."""
    torch.manual_seed(0)
    plan = [(16, 1), (32, 2), (64, 1)] if small else [(64, 1), (96, 2), (192, 4), (384, 14), (1408, 1)]
    layers: list[nn.Module] = []
    given = 3
    for made, depth in plan:
        layers += [BranchedConvolution(given if i == 0 else made, made, 2 if i == 0 else 1) for i in range(depth)]
        given = made
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000)).to(device)
    side, many = (64, 2) if small else (224, 96)
    images = torch.randn(many, 3, side, side, device=device)
    labels = torch.randint(0, 1000, (many,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(images), labels))


class CrossAttentionBlock(nn.Module):
    """The image attends to itself and then to the text; one modulation of the time step for all blocks, to which each
    adds a table of its own (Chen et al. 2023)."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(wide, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.table = nn.Parameter(torch.randn(6, wide) / wide**0.5)
        self.mixed, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.asks, self.told, self.back = nn.Linear(wide, wide), nn.Linear(wide, 2 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: torch.Tensor, text: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; text: [B, S, D]; moment: [B, 6, D]."""
        shift, scale, gate, shift_2, scale_2, gate_2 = (self.table + moment).chunk(6, 1)
        q, k, v = self.mixed(self.first(x) * (1 + scale) + shift).chunk(3, -1)
        x = x + gate * self.out(self.attended(q, k, v))
        k, v = self.told(text).chunk(2, -1)
        x = x + self.back(self.attended(self.asks(x), k, v))
        y = self.second(x) * (1 + scale_2) + shift_2
        made: torch.Tensor = x + gate_2 * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))
        return made

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: [B, T, D]; k, v: [B, S, D]. [B, T, D]."""
        q, k, v = (t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in (q, k, v))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class CrossAttentionTransformer(nn.Module):
    """Blocks one after another."""

    def __init__(self, wide: int, heads: int, depth: int) -> None:
        super().__init__()
        self.modulation = nn.Linear(wide, 6 * wide)
        self.blocks = nn.ModuleList(CrossAttentionBlock(wide, heads) for _ in range(depth))

    def forward(self, x: torch.Tensor, text: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; text: [B, S, D]; moment: [B, D]."""
        parts = self.modulation(nn.functional.silu(moment)).view(len(moment), 6, -1)
        for block in self.blocks:
            x = block(x, text, parts)
        return x


def cross_attention_diffusion(small: bool, device: str) -> Made:
    """A step of sampling by a diffusion transformer that looks the text up in each block, 4 x 4,096 tokens of images
    and 120 of text, bf16."""
    torch.manual_seed(0)
    wide, heads, many = (128, 2, 1) if small else (1152, 16, 4)
    model = CrossAttentionTransformer(wide, heads, 2 if small else 12).to(device, torch.bfloat16).eval()
    image, text = (
        torch.randn(many, tokens, wide, device=device, dtype=torch.bfloat16)
        for tokens in ((64, 16) if small else (4096, 120))
    )
    return model, inferred(image, text, torch.randn(many, wide, device=device, dtype=torch.bfloat16))


class FactorizationMachine(nn.Module):
    """Every pair of a row's features by the product of their embeddings, each feature by itself, and a deep network, of
    one table (Guo et al. 2017)."""

    begin: torch.Tensor

    def __init__(self, fields: int, rows: int, wide: int, deep: int) -> None:
        super().__init__()
        self.alone, self.paired = nn.Embedding(fields * rows, 1), nn.Embedding(fields * rows, wide)
        nn.init.normal_(self.paired.weight, std=0.01)
        self.register_buffer("begin", torch.arange(fields) * rows)
        self.deep = nn.Sequential(
            nn.Linear(fields * wide, deep), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(deep, deep), nn.ReLU(), nn.Dropout(0.2), nn.Linear(deep, 1),
        )  # fmt: skip

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """features: [B, F], a row of each field's part of the table. [B]."""
        places = features + self.begin
        vectors = self.paired(places)
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(-1)
        made: torch.Tensor = self.alone(places).sum((1, 2)) + pairs + self.deep(vectors.flatten(1))[:, 0]
        return made


def factorization_machine(small: bool, device: str) -> Made:
    """A recommender of a factorization machine and a deep network in training, 32,768 examples of 26 features, f32,
    Adam."""
    torch.manual_seed(0)
    batch, fields, rows, wide, deep = (32, 4, 20, 8, 16) if small else (32768, 26, 40_000, 16, 1024)
    model = FactorizationMachine(fields, rows, wide, deep).to(device)
    features = torch.randint(0, rows, (batch, fields), device=device)
    labels = torch.rand(batch, device=device).round()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(
        model, optimizer, lambda m: nn.functional.binary_cross_entropy_with_logits(m(features), labels)
    )  # fmt: skip


NEWEST: dict[str, Callable[[bool, str], Made]] = {
    "cohere training": cohere_training, "gemma decoding": gemma_decoding, "repvgg training": repvgg_training,
    "cross attention sampling": cross_attention_diffusion, "factorization machine training": factorization_machine,
}  # fmt: skip
"""Nothing was chosen by these, and no run had them when they were predicted."""
