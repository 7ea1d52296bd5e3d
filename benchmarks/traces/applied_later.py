"""Models that no run had before: predicted (tests/records/applied-predicted-h200.json) before they are measured.

Each takes (small, device) as those of `applied_models` do, and is made of torch and transformers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.traces.applied_models import Made, inferred, next_tokens, one_token, trained


def olmo_training(small: bool, device: str) -> Made:
    """OLMo 2 (norms behind each block, and of queries and keys) in training, 4 sequences of 2,048, bf16, AdamW."""
    from transformers import Olmo2Config, Olmo2ForCausalLM

    wide = 128 if small else 1536
    config = Olmo2Config(
        vocab_size=512 if small else 50304, hidden_size=wide, intermediate_size=4 * wide,
        num_hidden_layers=2 if small else 10, num_attention_heads=wide // 64, num_key_value_heads=wide // 64,
        max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Olmo2ForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    tokens = torch.randint(0, 512, (2, 64) if small else (4, 2048), device=device)
    return next_tokens(model, tokens)


def starcoder_decoding(small: bool, device: str) -> Made:
    """One token of 32 sequences of StarCoder 2 (LayerNorm, biases, two heads of keys), static cache of 1,024, bf16."""
    from transformers import Starcoder2Config, Starcoder2ForCausalLM

    wide = 128 if small else 2048
    config = Starcoder2Config(
        vocab_size=512 if small else 49152, hidden_size=wide, intermediate_size=4 * wide,
        num_hidden_layers=2 if small else 12, num_attention_heads=wide // 64, num_key_value_heads=2,
        max_position_embeddings=2048, sliding_window=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Starcoder2ForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()
    return one_token(model, 32, small, device)


def regnet_training(small: bool, device: str) -> Made:
    """RegNetY (grouped convolutions, squeeze and excitation) in training, 96 images, f32, SGD with momentum."""
    from transformers import RegNetConfig, RegNetForImageClassification

    torch.manual_seed(0)
    sizes: dict[str, Any] = (
        {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "groups_width": 16}
        if small
        else {"embedding_size": 32, "hidden_sizes": [224, 448, 896, 2240], "depths": [2, 5, 13, 1], "groups_width": 112}
    )
    config = RegNetConfig(layer_type="y", num_labels=1000, **sizes)
    model = RegNetForImageClassification(config).to(device)
    side, many = (64, 2) if small else (224, 96)
    images = torch.randn(many, 3, side, side, device=device)
    labels = torch.randint(0, 1000, (many,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(pixel_values=images).logits, labels))


class Stream(nn.Module):
    """What the text and the image have each of its own in a joint block: two norms, shifted and scaled by the time
    step, projections and a network."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = (nn.LayerNorm(wide, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.modulation, self.mixed, self.out = (
            nn.Linear(wide, 6 * wide),
            nn.Linear(wide, 3 * wide),
            nn.Linear(wide, wide),
        )
        self.of_queries, self.of_keys = nn.RMSNorm(wide // heads), nn.RMSNorm(wide // heads)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.heads = heads

    def taken(self, x: torch.Tensor, moment: torch.Tensor) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]]:
        """x: [B, T, D]; moment: [B, D]. q, k and v, each [B, H, T, D / H]; the six of the modulation, [B, 1, D]."""
        parts = self.modulation(nn.functional.silu(moment))[:, None].chunk(6, -1)
        y = self.first(x) * (1 + parts[1]) + parts[0]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mixed(y).chunk(3, -1))
        return [self.of_queries(q), self.of_keys(k), v], parts

    def given(self, x: torch.Tensor, attended: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """attended: [B, T, D]."""
        x = x + parts[2] * self.out(attended)
        y = self.second(x) * (1 + parts[4]) + parts[3]
        made: torch.Tensor = x + parts[5] * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))
        return made


class JointBlock(nn.Module):
    """Text and image attend to both at once (Esser et al. 2024)."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.image, self.text = Stream(wide, heads), Stream(wide, heads)

    def forward(
        self, image: torch.Tensor, text: torch.Tensor, moment: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """image: [B, T, D]; text: [B, S, D]; moment: [B, D]."""
        (of_image, first), (of_text, second) = self.image.taken(image, moment), self.text.taken(text, moment)
        q, k, v = (torch.cat(pair, 2) for pair in zip(of_image, of_text, strict=True))
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        left, right = attended[:, : image.shape[1]], attended[:, image.shape[1] :]
        return self.image.given(image, left, first), self.text.given(text, right, second)


class JointTransformer(nn.Module):
    """Blocks one after another."""

    def __init__(self, wide: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(JointBlock(wide, heads) for _ in range(depth))

    def forward(self, image: torch.Tensor, text: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """image: [B, T, D]; text: [B, S, D]; moment: [B, D]."""
        for block in self.blocks:
            image, text = block(image, text, moment)
        return image


def joint_diffusion(small: bool, device: str) -> Made:
    """A step of sampling by a diffusion transformer that reads text and image jointly, 2 x 4,096 tokens, bf16."""
    torch.manual_seed(0)
    wide, many = (128, 1) if small else (1536, 2)
    model = JointTransformer(wide, wide // 64, 2 if small else 8).to(device, torch.bfloat16).eval()
    image, text = (
        torch.randn(many, tokens, wide, device=device, dtype=torch.bfloat16)
        for tokens in ((64, 16) if small else (4096, 160))
    )
    return model, inferred(image, text, torch.randn(many, wide, device=device, dtype=torch.bfloat16))


class CrossNetwork(nn.Module):
    """Embeddings of a row in each table, crossed with all features layer by layer, next to a deep network (Wang et al.
    2021)."""

    def __init__(self, tables: int, rows: int, wide: int, layers: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, wide) for _ in range(tables))
        features = tables * wide + 13
        self.norm = nn.BatchNorm1d(13)
        self.crosses = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))
        self.deep = nn.Sequential(
            nn.Linear(features, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.1)
        )
        self.last = nn.Linear(features + 512, 1)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """dense: [B, 13]; sparse: [tables, B]."""
        read = [table(rows) for table, rows in zip(self.tables, sparse, strict=True)]
        first = x = torch.cat([self.norm(dense), *read], 1)
        for cross in self.crosses:
            x = first * cross(x) + x
        made: torch.Tensor = self.last(torch.cat([x, self.deep(first)], 1))[:, 0]
        return made


def cross_network(small: bool, device: str) -> Made:
    """A recommender of crossed features in training, 40 tables, 16,384 examples, f32, Adam."""
    torch.manual_seed(0)
    tables, batch, rows, wide = (5, 64, 100, 8) if small else (40, 16384, 50_000, 32)
    model = CrossNetwork(tables, rows, wide, 3).to(device)
    dense, sparse = torch.randn(batch, 13, device=device), torch.randint(0, rows, (tables, batch), device=device)
    labels = torch.rand(batch, device=device).round()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: nn.functional.binary_cross_entropy_with_logits(m(dense, sparse), labels))


LATER: dict[str, Callable[[bool, str], Made]] = {
    "olmo training": olmo_training, "starcoder decoding": starcoder_decoding, "regnet training": regnet_training,
    "joint diffusion sampling": joint_diffusion, "cross network training": cross_network,
}  # fmt: skip
"""Nothing was chosen by these, and no run had them when they were predicted."""
