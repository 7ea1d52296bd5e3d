"""Models written here in plain torch: of a row, a batch and a size, each gives its modules and the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tools.corpus.recording.made import DTYPES, Call, Made, Place
from tools.corpus.recording.rows import Row

PlainMaker = Callable[[Row, int, int], tuple[Any, Call]]


def make_plain(write: PlainMaker) -> Callable[[Row, Place], Callable[[], Made]]:
    """Of a function of (row, batch, size) that gives the modules and the call."""

    def make(row: Row, place: Place) -> Callable[[], Made]:

        def build() -> Made:
            dtype = getattr(torch, DTYPES[row.dtype])
            torch.set_default_dtype(dtype)
            size = min(row.size, 64) if place.tiny else row.size
            with torch.device(place.device):
                model, call = write(row, place.batch(row), size)
            torch.set_default_dtype(torch.float32)
            return Made(model, call)

        return build

    return make


def noise_loss(output: Any, row: Row) -> Any:
    """The mean of squares in training, else the output."""
    return F.mse_loss(output.float(), torch.zeros_like(output).float()) if row.mode == "train" else output


def unet(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A latent diffusion U-Net's stages: two residual blocks, one of them with attention, down and up once."""
    width = 320

    class Residual(nn.Module):
        def __init__(self, given: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, given), nn.GroupNorm(32, out)
            self.conv1, self.conv2 = nn.Conv2d(given, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.time = nn.Linear(1280, out)
            self.skip = nn.Conv2d(given, out, 1) if given != out else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int, context: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm, self.q, self.out = nn.LayerNorm(width), nn.Linear(width, width, False), nn.Linear(width, width)
            self.k, self.v = nn.Linear(context, width, False), nn.Linear(context, width, False)

        def forward(self, x: Any, context: Any | None = None) -> Any:
            h = self.norm(x)
            c = h if context is None else context
            split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(h), self.k(c), self.v(c))]
            return x + self.out(F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2))

    class Transformer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.enter = nn.GroupNorm(32, width), nn.Conv2d(width, width, 1)
            self.own, self.cross = Attention(width, 8, width), Attention(width, 8, 768)
            self.norm3, self.up, self.down = (
                nn.LayerNorm(width),
                nn.Linear(width, 8 * width),
                nn.Linear(4 * width, width),
            )
            self.leave = nn.Conv2d(width, width, 1)

        def forward(self, x: Any, context: Any) -> Any:
            h = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
            h = self.cross(self.own(h), context)
            a, gate = self.up(self.norm3(h)).chunk(2, -1)
            h = h + self.down(a * F.gelu(gate))
            return x + self.leave(h.transpose(1, 2).unflatten(2, x.shape[2:]))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(4, width, 3, padding=1)
            self.time = nn.Sequential(nn.Linear(width, 1280), nn.SiLU(), nn.Linear(1280, 1280))
            self.a, self.at = Residual(width, width), Transformer(width)
            self.down = nn.Conv2d(width, width, 3, 2, 1)
            self.b, self.bt = Residual(width, 2 * width), Transformer(2 * width)
            self.up = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
            self.c = Residual(3 * width, width)
            self.norm, self.leave = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

        def forward(self, x: Any, t: Any, context: Any) -> Any:
            scale = torch.exp(-9.21 * torch.arange(width // 2, device=x.device) / (width // 2))
            angle = t[:, None].float() * scale
            t = self.time(torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype))
            a = self.at(self.a(self.enter(x), t), context)
            b = self.bt(self.b(self.down(a), t), context)
            b = self.up(F.interpolate(b, scale_factor=2.0, mode="nearest"))
            c = self.c(torch.cat([a, b], 1), t)
            return self.leave(F.silu(self.norm(c)))

    net = Net()
    x, t, context = torch.randn(batch, 4, size, size), torch.rand(batch), torch.randn(batch, 77, 768)
    return net, lambda: noise_loss(net(x, t, context), row)


def dit(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A diffusion transformer (XL/2): adaptive layer norm from time and class."""
    width, heads = 1152, 16

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.adapt = nn.Linear(width, 6 * width)

        def forward(self, x: Any, c: Any) -> Any:
            shift1, scale1, gate1, shift2, scale2, gate2 = self.adapt(F.silu(c)).chunk(6, 1)
            h = self.norm1(x) * (1 + scale1.unsqueeze(1)) + shift1.unsqueeze(1)
            q, k, v = self.qkv(h).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + gate1.unsqueeze(1) * self.out(h)
            h = self.norm2(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1)
            return x + gate2.unsqueeze(1) * self.down(F.gelu(self.up(h), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.classes = nn.Conv2d(4, width, 2, 2), nn.Embedding(1001, width)
            self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.adapt = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 2 * width)
            self.leave = nn.Linear(width, 16)

        def forward(self, x: Any, t: Any, y: Any) -> Any:
            scale = torch.exp(-9.21 * torch.arange(128, device=x.device) / 128)
            angle = t[:, None].float() * scale
            c = self.time(torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)) + self.classes(y)
            h = self.patch(x).flatten(2).transpose(1, 2)
            for block in self.blocks:
                h = block(h, c)
            shift, gain = self.adapt(F.silu(c)).chunk(2, 1)
            h = self.leave(self.norm(h) * (1 + gain.unsqueeze(1)) + shift.unsqueeze(1))
            side = x.shape[-1] // 2
            return (
                h.unflatten(1, (side, side)).unflatten(-1, (2, 2, 4)).permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
            )

    net = Net()
    x, t, y = torch.randn(batch, 4, size, size), torch.rand(batch), torch.randint(0, 1000, (batch,))
    return net, lambda: noise_loss(net(x, t, y), row)


def vae_decoder(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Of latent diffusion: group norm, SiLU, convolutions, nearest upsampling, 512 to 128 channels."""

    class Residual(nn.Module):
        def __init__(self, given: int, out: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, given, 1e-6), nn.GroupNorm(32, out, 1e-6)
            self.conv1, self.conv2 = nn.Conv2d(given, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
            self.skip = nn.Conv2d(given, out, 1) if given != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x)))
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    up = nn.Upsample(scale_factor=2.0)
    net = nn.Sequential(
        nn.Conv2d(4, 512, 3, padding=1), Residual(512, 512), up,
        nn.Conv2d(512, 512, 3, padding=1), Residual(512, 256), up,
        nn.Conv2d(256, 256, 3, padding=1), Residual(256, 128), nn.GroupNorm(32, 128), nn.SiLU(),
        nn.Conv2d(128, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    x = torch.randn(batch, 4, size, size)
    return net, lambda: net(x)


def dlrm(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Embeddings of 26 tables, a bottom and a top MLP, products of all pairs."""
    tables = nn.ModuleList([nn.EmbeddingBag(20000 + 7919 * (i % 9), 128, mode="sum") for i in range(size)])
    bottom = nn.Sequential(
        nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()
    )
    pairs = size * (size + 1) // 2
    top = nn.Sequential(nn.Linear(128 + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
    dense, labels = torch.randn(batch, 13), torch.randint(0, 2, (batch,)).to(torch.get_default_dtype())
    ids = [torch.randint(0, 20000, (batch, 1 + i % 4)) for i in range(size)]
    lower = torch.tril_indices(size + 1, size + 1, -1)

    def call() -> Any:
        x = bottom(dense)
        vectors = torch.stack([x, *(t(i) for t, i in zip(tables, ids, strict=True))], 1)
        products = vectors @ vectors.transpose(1, 2)
        output = top(torch.cat([x, products[:, lower[0], lower[1]]], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(output, labels) if row.mode == "train" else output.sigmoid()

    return nn.ModuleList([tables, bottom, top]), call


def rnn(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A language model on cuDNN's recurrent cells."""
    cells = getattr(nn, row.spec["cell"])(650, 650, 2, batch_first=True, dropout=0.5)
    table, head = nn.Embedding(33278, 650), nn.Linear(650, 33278)
    ids = torch.randint(0, 33278, (batch, size))

    def call() -> Any:
        hidden, _ = cells(F.dropout(table(ids), 0.5, row.mode == "train"))
        if row.mode == "train":
            return F.nll_loss(head(hidden).flatten(0, 1).log_softmax(-1), ids.flatten())
        return head(hidden[:, -1]).softmax(-1)

    return nn.ModuleList([cells, table, head]), call


def lstm_cells(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A recurrence written out by hand, with layer norm on the gates."""
    enter, inner, norm = nn.Linear(512, 2048), nn.Linear(512, 2048, bias=False), nn.LayerNorm(2048)
    x = torch.randn(batch, size, 512)

    def call() -> Any:
        h = c = x.new_zeros(batch, 512)
        outputs = []
        for t in range(size):
            i, f, g, o = norm(enter(x[:, t]) + inner(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1)

    return nn.ModuleList([enter, inner, norm]), call


def pointnet(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Shared layers over points, their maximum, a head."""
    layers: list[Any] = []
    for given, out in ((3, 64), (64, 128), (128, 1024)):
        layers += [nn.Conv1d(given, out, 1), nn.BatchNorm1d(out), nn.ReLU()]
    net, head = (
        nn.Sequential(*layers),
        nn.Sequential(nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 40)),
    )
    x, labels = torch.randn(batch, 3, size), torch.randint(0, 40, (batch,))
    return nn.ModuleList([net, head]), lambda: F.cross_entropy(head(net(x).amax(-1)), labels, label_smoothing=0.1)


def nerf(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Positional encoding, an MLP, and colours composed along each ray by a cumulative product."""
    net = nn.Sequential(nn.Linear(63, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    points, target, steps = torch.randn(batch, size, 3), torch.rand(batch, 3), torch.rand(batch, size)
    scales = 2.0 ** torch.arange(10)

    def call() -> Any:
        angle = (points[..., None] * scales).flatten(-2)
        output = net(torch.cat([points, angle.sin(), angle.cos()], -1))
        alpha = 1.0 - torch.exp(-F.relu(output[..., 3]) * steps)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        colour = ((alpha * through)[..., None] * output[..., :3].sigmoid()).sum(1)
        return F.mse_loss(colour, target)

    return net, call


def wavenet(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Gated dilated convolutions, padded on one side."""
    dilated = nn.ModuleList([nn.Conv1d(64, 128, 2, dilation=2**i) for i in range(4)])
    joins = nn.ModuleList([nn.Conv1d(64, 64, 1) for _ in range(4)])
    x = torch.randn(batch, 64, size)

    def call() -> Any:
        h, total = x, torch.zeros_like(x)
        for i, (conv, join) in enumerate(zip(dilated, joins, strict=True)):
            a, b = conv(F.pad(h, (2**i, 0))).chunk(2, 1)
            part = join(a.tanh() * b.sigmoid())
            total, h = total + part, h + part
        return F.leaky_relu(total, 0.2)

    return nn.ModuleList([dilated, joins]), call


def vqvae(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Convolutions, the nearest entry of a table, transposed convolutions."""
    enter = nn.Sequential(nn.Conv2d(3, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 4, 2, 1), nn.BatchNorm2d(256))
    leave = nn.Sequential(nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(128, 3, 4, 2, 1))
    table = nn.Embedding(1024, 256)
    x = torch.randn(batch, 3, size, size)

    def call() -> Any:
        z = enter(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, 256)
        distance = flat.square().sum(1, keepdim=True) - 2.0 * flat @ table.weight.t() + table.weight.square().sum(1)
        chosen = table(distance.argmin(1)).view(batch, size // 4, size // 4, 256).permute(0, 3, 1, 2)
        loss = F.mse_loss(chosen, z.detach()) + 0.25 * F.mse_loss(z, chosen.detach())
        return loss + F.smooth_l1_loss(leave(z + (chosen - z).detach()), x)

    return nn.ModuleList([enter, leave, table]), call


def mlp(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Two linear layers and a norm."""
    net = nn.Sequential(
        nn.Linear(size, 2 * size),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.RMSNorm(2 * size),
        nn.Linear(2 * size, size),
        nn.Softplus(),
    )
    x = torch.randn(batch, size)
    return net, lambda: F.kl_div(net(x).float().log_softmax(-1), x.float().softmax(-1), reduction="batchmean")


def fftconv(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A long convolution by FFT with gates, as state space models use it."""
    width = 768
    enter, leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
    short = nn.Conv1d(3 * width, 3 * width, 3, padding=2, groups=3 * width)
    x, filters, bias = torch.randn(batch, size, width), torch.randn(width, size), torch.randn(width)

    def call() -> Any:
        u = short(enter(x).transpose(1, 2))[..., :size]
        a, b, v = u.chunk(3, 1)
        v = v * a
        y = torch.fft.irfft(torch.fft.rfft(v, n=2 * size) * torch.fft.rfft(filters, n=2 * size), n=2 * size)[..., :size]
        return leave(((y + v * bias[:, None]) * b).transpose(1, 2))

    return nn.ModuleList([enter, leave, short]), call


def retention(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Attention with a decay in the place of the softmax, group norm on the heads, a gate."""
    width, heads = 1024, 8
    qkv, gate, out = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)
    norm = nn.GroupNorm(heads, width)
    x = torch.randn(batch, size, width)
    gamma = 1.0 - 2.0 ** (-5.0 - torch.arange(heads).float())
    places = torch.arange(size)

    def call() -> Any:
        q, k, v = qkv(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        distance = places[:, None] - places
        decay = torch.where(distance >= 0, gamma[:, None, None] ** distance.clamp(min=0), 0.0).to(x.dtype)
        h = ((q @ k.transpose(-1, -2)) * (width // heads) ** -0.5 * decay) @ v
        h = norm(h.transpose(1, 2).reshape(-1, width)).view(batch, size, width)
        return noise_loss(out(F.silu(gate(x)) * h), row)

    return nn.ModuleList([qkv, gate, out, norm]), call


def int8_linear(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Rows quantised to 8 bits by their largest value, and a weight of 8 bits brought back by its scale."""
    weight = torch.randint(-127, 128, (2 * size, size), dtype=torch.int8)
    scale = torch.rand(2 * size, 1)
    x = torch.randn(batch, size)

    def call() -> Any:
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127.0
        rows = (x / step).round().clamp(-128, 127).to(torch.int8)
        return (rows.to(x.dtype) * step) @ (weight.to(x.dtype) * scale).t()

    return nn.Module(), call


def contrastive(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """A projection, and losses between two views."""
    net = nn.Sequential(nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, size))
    a, b, labels = torch.randn(batch, 2048), torch.randn(batch, 2048), torch.arange(batch)

    def call() -> Any:
        one, two = F.normalize(net(a), dim=-1), F.normalize(net(b), dim=-1)
        scores = one @ two.t() / 0.07
        loss = F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)
        return loss + F.triplet_margin_loss(one, two, two.roll(1, 0), margin=0.3)

    return net, call


def super_resolution(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Convolutions and a pixel shuffle."""
    net = nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.PReLU(64), nn.Conv2d(64, 64, 3, padding=1),
        nn.InstanceNorm2d(64, affine=True), nn.PReLU(64), nn.Conv2d(64, 48, 3, padding=1),
        nn.PixelShuffle(4), nn.Hardtanh(0.0, 1.0),
    )  # fmt: skip
    x = torch.randn(batch, 3, size, size)
    return net, lambda: net(x)


def discriminator(row: Row, batch: int, size: int) -> tuple[Any, Call]:
    """Strided convolutions with spectral norms and a hinge loss."""

    layers: list[Any] = []
    for given, out in ((3, 64), (64, 128), (128, 256)):
        layers += [
            parametrizations.spectral_norm(nn.Conv2d(given, out, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.AvgPool2d(3, 1, 1),
        ]
    net = nn.Sequential(*layers, nn.Conv2d(256, 1, 4))
    x, y = torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size)
    return net, lambda: F.relu(1.0 - net(x)).mean() + F.relu(1.0 + net(y)).mean()
