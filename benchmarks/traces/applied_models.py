"""The models whose steps are advised on, changed as advised and timed again: random weights, made-up inputs.

Each takes (small, device): small for a dry run on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, Callable[[nn.Module], Any]]
"""A model and its step, given the model as it is to be called."""
OPTIMIZERS: list[torch.optim.Optimizer] = []
"""Of the process's model; none where it is not trained."""


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[nn.Module], torch.Tensor]) -> Made:
    """A training step of the model."""
    OPTIMIZERS.append(optimizer)

    def step(called: nn.Module) -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(called))
        optimizer.step()

    return model, step


def next_tokens(model: nn.Module, tokens: torch.Tensor) -> Made:
    """A training step of a language model by AdamW: the loss of each of these tokens after those before it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return trained(model, optimizer, lambda m: m(input_ids=tokens, labels=tokens, use_cache=False).loss)


def inferred(*inputs: torch.Tensor) -> Callable[[nn.Module], Any]:
    """A step of a model that is not trained."""

    def step(called: nn.Module) -> None:
        with torch.no_grad():
            called(*inputs)

    return step


def llama(small: bool, device: str) -> Any:
    """A decoder of transformers, random weights, bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    wide = 128 if small else 1024
    config = LlamaConfig(
        vocab_size=512 if small else 32000, hidden_size=wide, intermediate_size=3 * wide,
        num_hidden_layers=2 if small else 8,
        num_attention_heads=4 if small else 16, num_key_value_heads=2 if small else 8, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16)


def llama_training(small: bool, device: str) -> Made:
    """Next-token loss over 8 sequences of 1,024, AdamW as torch comes."""
    model = llama(small, device)
    tokens = torch.randint(0, 512, (2, 64) if small else (8, 1024), device=device)
    return next_tokens(model, tokens)


def llama_decoding(small: bool, device: str) -> Made:
    """One token of 8 sequences with a static cache of 1,024."""
    return one_token(llama(small, device).eval(), 8, small, device)


def one_token(model: Any, sequences: int, small: bool, device: str) -> Made:
    """A step of so many sequences' next token, in the middle of a static cache of 1,024."""
    from transformers import StaticCache

    length = 64 if small else 1024
    cache = StaticCache(config=model.config, max_cache_len=length)
    tokens = torch.randint(0, 512, (sequences, 1), device=device)
    position = torch.tensor([length // 2], device=device)

    def step(called: nn.Module) -> None:
        with torch.no_grad():
            called(input_ids=tokens, past_key_values=cache, cache_position=position, position_ids=position[None])

    return model, step


def resnet(small: bool, device: str) -> Made:
    """ResNet-50 in f32, SGD with momentum."""
    from torchvision.models import resnet50  # on a GPU host

    torch.manual_seed(0)
    model = resnet50().to(device)
    images = torch.randn(2 if small else 64, 3, 64 if small else 224, 64 if small else 224, device=device)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(images), labels))


class DiffusionBlock(nn.Module):
    """A transformer block whose norms are shifted and scaled by the time step's embedding."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(wide, elementwise_affine=False) for _ in range(2))
        self.mixed, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.modulation = nn.Linear(wide, 6 * wide)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; time: [B, D]."""
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(nn.functional.silu(time))[:, None].chunk(6, -1)
        y = self.first(x) * (1 + scale) + shift
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mixed(y).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(attended)
        y = self.second(x) * (1 + scale2) + shift2
        made: torch.Tensor = x + gate2 * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))
        return made


class Diffusion(nn.Module):
    """Blocks one after another."""

    def __init__(self, wide: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DiffusionBlock(wide, heads) for _ in range(depth))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; time: [B, D]."""
        for block in self.blocks:
            x = block(x, time)
        return x


def diffusion(small: bool, device: str) -> Made:
    """A diffusion transformer's step of sampling in f32."""
    torch.manual_seed(0)
    wide = 64 if small else 1024
    model = Diffusion(wide, wide // 64, 2 if small else 6).to(device).eval()
    x, moment = (
        torch.randn(2 if small else 8, 64 if small else 1024, wide, device=device),
        torch.randn(2 if small else 8, wide, device=device),
    )

    return model, inferred(x, moment)


class Recommender(nn.Module):
    """Embedding bags and a bottom network, their products in pairs, a top network (Naumov et al. 2019)."""

    def __init__(self, tables: int, rows: int, wide: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, wide, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, wide), nn.ReLU()
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + wide, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """dense: [B, 13]; sparse: [tables, B, per bag]."""
        low = self.bottom(dense)
        vectors = torch.stack([low, *(bag(rows) for bag, rows in zip(self.bags, sparse, strict=True))], 1)
        products = vectors @ vectors.transpose(1, 2)
        places: Any = self.pairs
        made: torch.Tensor = self.top(torch.cat([low, products[:, places[0], places[1]]], 1))[:, 0]
        return made


def recommender(small: bool, device: str) -> Made:
    """A recommender in training, 26 tables, f32."""
    torch.manual_seed(0)
    batch, rows = (64, 100) if small else (8192, 100_000)
    model = Recommender(26, rows, 64).to(device)
    dense, sparse = torch.randn(batch, 13, device=device), torch.randint(0, rows, (26, batch, 4), device=device)
    labels = torch.rand(batch, device=device).round()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: nn.functional.binary_cross_entropy_with_logits(m(dense, sparse), labels))


def vision_transformer(small: bool, device: str) -> Made:
    """ViT-B/16 over 64 images in f32, nothing trained."""
    from torchvision.models import vit_b_16

    torch.manual_seed(0)
    model = vit_b_16().to(device).eval()
    images = torch.randn(1 if small else 64, 3, 224, 224, device=device)
    return model, inferred(images)


def efficientnet(small: bool, device: str) -> Made:
    """EfficientNet-B0 over 16 images in f32, nothing trained."""
    from torchvision.models import efficientnet_b0

    torch.manual_seed(0)
    model = efficientnet_b0().to(device).eval()
    images = torch.randn(1 if small else 16, 3, 224, 224, device=device)
    return model, inferred(images)


def convnext(small: bool, device: str) -> Made:
    """ConvNeXt-T in training, f32, AdamW."""
    from torchvision.models import convnext_tiny

    torch.manual_seed(0)
    model = convnext_tiny().to(device)
    images = torch.randn(1 if small else 48, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(images), labels))


def bert(small: bool, device: str) -> Made:
    """BERT-base with its attention written out, masked words of 16 sequences of 256, autocast to bf16, AdamW."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    layers = {"num_hidden_layers": 2} if small else {}
    model = BertForMaskedLM(BertConfig(attn_implementation="eager", **layers)).to(device)
    tokens = torch.randint(0, 30000, (2, 32) if small else (16, 256), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def loss(called: nn.Module) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            made: torch.Tensor = called(input_ids=tokens, labels=tokens).loss
        return made

    return trained(model, optimizer, loss)


def t5(small: bool, device: str) -> Made:
    """T5-small in training, f32, 16 sequences of 256 to 128, AdamW."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    layers = {"num_layers": 2} if small else {}
    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, dropout_rate=0.0, **layers)).to(device)
    tokens = torch.randint(0, 30000, (2, 32) if small else (16, 256), device=device)
    labels = torch.randint(0, 30000, (2, 16) if small else (16, 128), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return trained(model, optimizer, lambda m: m(input_ids=tokens, labels=labels).loss)


def whisper(small: bool, device: str) -> Made:
    """Whisper-base in training: half a minute of speech to 128 tokens, 16 of them, autocast to bf16, AdamW."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    wide = 64 if small else 512
    config = WhisperConfig(
        d_model=wide, encoder_layers=2 if small else 6, decoder_layers=2 if small else 6,
        encoder_attention_heads=wide // 64, decoder_attention_heads=wide // 64, encoder_ffn_dim=4 * wide,
        decoder_ffn_dim=4 * wide, max_source_positions=50 if small else 1500, decoder_start_token_id=1,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).to(device)
    many = 2 if small else 16
    received = torch.randn(many, config.num_mel_bins, 2 * config.max_source_positions, device=device)
    labels = torch.randint(2, 50000, (many, 16 if small else 128), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def loss(called: nn.Module) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            made: torch.Tensor = called(input_features=received, labels=labels, use_cache=False).loss
        return made

    return trained(model, optimizer, loss)


class ResidualBlock(nn.Module):
    """Two convolutions, each behind GroupNorm and SiLU, with the time step's embedding in between."""

    def __init__(self, taken: int, given: int, moment: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(32, taken), nn.GroupNorm(32, given)
        self.into, self.out = nn.Conv2d(taken, given, 3, padding=1), nn.Conv2d(given, given, 3, padding=1)
        self.moment = nn.Linear(moment, given)
        self.past: nn.Module = nn.Conv2d(taken, given, 1) if taken != given else nn.Identity()

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """x: [B, C, H, W]; moment: [B, D]."""
        y = self.into(nn.functional.silu(self.first(x)))
        y = y + self.moment(nn.functional.silu(moment))[:, :, None, None]
        made: torch.Tensor = self.past(x) + self.out(nn.functional.silu(self.second(y)))
        return made


class PixelAttention(nn.Module):
    """Self-attention over an image's pixels."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, wide)
        self.mixed, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, C, H, W]."""
        y = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mixed(y).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        made: torch.Tensor = x + self.out(attended).transpose(1, 2).unflatten(2, x.shape[2:])
        return made


class UNet(nn.Module):
    """Three resolutions down and up again, attention at the two lower ones, as Rombach et al. (2022) have them."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        moment = 4 * wide
        self.first, self.last = nn.Conv2d(4, wide, 3, padding=1), nn.Conv2d(wide, 4, 3, padding=1)
        widths = (wide, 2 * wide, 4 * wide)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        taken, kept = wide, [wide]
        for level, given in enumerate(widths):
            for _ in range(2):
                attends = PixelAttention(given, given // 64) if level else nn.Identity()
                self.down.append(nn.ModuleList([ResidualBlock(taken, given, moment), attends]))
                taken = given
                kept.append(given)
            if level < 2:
                self.down.append(nn.Conv2d(given, given, 3, stride=2, padding=1))
                kept.append(given)
        self.middle = nn.ModuleList([ResidualBlock(taken, taken, moment), PixelAttention(taken, taken // 64)])
        for level, given in reversed(list(enumerate(widths))):
            for _ in range(3):
                attends = PixelAttention(given, given // 64) if level else nn.Identity()
                self.up.append(nn.ModuleList([ResidualBlock(taken + kept.pop(), given, moment), attends]))
                taken = given
            if level:
                self.up.append(nn.Conv2d(given, given, 3, padding=1))
        self.norm = nn.GroupNorm(32, wide)

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """x: [B, 4, H, W]; moment: [B, D]."""
        x = self.first(x)
        kept = [x]
        for part in self.down:
            x = part(x) if isinstance(part, nn.Conv2d) else part[1](part[0](x, moment))  # type: ignore[index]
            kept.append(x)
        x = self.middle[1](self.middle[0](x, moment))
        for part in self.up:
            if isinstance(part, nn.Conv2d):
                x = part(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
            else:
                x = part[1](part[0](torch.cat([x, kept.pop()], 1), moment))  # type: ignore[index]
        made: torch.Tensor = self.last(nn.functional.silu(self.norm(x)))
        return made


def unet(small: bool, device: str) -> Made:
    """A latent diffusion model's U-Net in sampling, 8 images of 64 x 64 latents, bf16."""
    torch.manual_seed(0)
    wide, side = (64, 16) if small else (320, 64)
    model = UNet(wide).to(device, torch.bfloat16).eval()
    many = 1 if small else 8
    x = torch.randn(many, 4, side, side, device=device, dtype=torch.bfloat16)
    moment = torch.randn(many, 4 * wide, device=device, dtype=torch.bfloat16)
    return model, inferred(x, moment)


def mixtral_decoding(small: bool, device: str) -> Made:
    """One token of 16 sequences through 8 experts of which 2 are taken, static cache of 1,024, bf16."""
    from transformers import MixtralConfig, MixtralForCausalLM

    wide = 128 if small else 1024
    config = MixtralConfig(
        vocab_size=512 if small else 32000, hidden_size=wide, intermediate_size=2 * wide,
        num_hidden_layers=2 if small else 8, num_attention_heads=wide // 64, num_key_value_heads=wide // 64,
        max_position_embeddings=2048, num_local_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MixtralForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()
    return one_token(model, 16, small, device)


class GraphLayer(nn.Module):
    """Messages of a node's neighbours, made of both ends of each edge and summed (Gilmer et al. 2017)."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * wide, wide), nn.ReLU())
        self.update, self.norm = nn.Linear(2 * wide, wide), nn.BatchNorm1d(wide)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """x: [N, D]; edges: [2, E], from and to."""
        received = self.message(torch.cat([x[edges[0]], x[edges[1]]], 1))
        summed = torch.zeros_like(x).index_add(0, edges[1], received)
        made: torch.Tensor = x + torch.relu(self.norm(self.update(torch.cat([x, summed], 1))))
        return made


class GraphNetwork(nn.Module):
    """Layers of messages, and a class for every node."""

    def __init__(self, wide: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphLayer(wide) for _ in range(depth))
        self.last = nn.Linear(wide, 40)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """x: [N, D]; edges: [2, E]."""
        for layer in self.layers:
            x = layer(x, edges)
        made: torch.Tensor = self.last(x)
        return made


def graph_network(small: bool, device: str) -> Made:
    """A graph of 100,000 nodes and a million edges in training, f32, Adam."""
    torch.manual_seed(0)
    nodes, each = (200, 5) if small else (100_000, 10)
    model = GraphNetwork(128, 4).to(device)
    x, edges = torch.randn(nodes, 128, device=device), torch.randint(0, nodes, (2, each * nodes), device=device)
    labels = torch.randint(0, 40, (nodes,), device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(x, edges), labels))


MODELS: dict[str, Callable[[bool, str], Made]] = {
    "llama training": llama_training, "llama decoding": llama_decoding, "resnet50 training": resnet,
    "diffusion transformer": diffusion, "recommender training": recommender,
}  # fmt: skip
"""By these the prediction of a step was mended."""
OTHERS: dict[str, Callable[[bool, str], Made]] = {
    "vit inference": vision_transformer, "efficientnet inference": efficientnet, "convnext training": convnext,
    "bert training": bert, "t5 training": t5,
}  # fmt: skip
"""Nothing was chosen by these: what the predictions are worth."""
NEW: dict[str, Callable[[bool, str], Made]] = {
    "whisper training": whisper, "u-net sampling": unet, "mixtral decoding": mixtral_decoding,
    "graph network training": graph_network,
}  # fmt: skip
"""Nothing was chosen by these either, and no run had them before."""
ALL = {**MODELS, **OTHERS, **NEW}
