"""A convolution or a product with what follows it is one region, as torch.compile sees it, recorded here and mined."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, Mining, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

Tensor = torch.Tensor
CHANNELS, SIZE = 8, 16
X = torch.randn(2, CHANNELS, SIZE, SIZE)
KERNEL, BIAS = torch.randn(CHANNELS, CHANNELS, 3, 3), torch.randn(CHANNELS)
STATISTICS = (torch.zeros(CHANNELS), torch.ones(CHANNELS), torch.randn(CHANNELS), torch.randn(CHANNELS))


def mined(path: Path, function: Callable[..., object], *args: Tensor) -> Mining:
    return mine(read_trace(record(path, function, *args)))


def convolution_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, b, padding=1).relu_()


def convolution_bias_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.conv2d(x, w, padding=1) + b[:, None, None])


def convolution_norm(x: Tensor, w: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var, g, b))


def convolution_norm_residual(x: Tensor, w: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var, g, b) + x)


FORMS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], tuple[str, ...]]] = {
    "convolution, ReLU": (convolution_relu, (X, KERNEL, BIAS), ("conv2d", "relu_")),
    "convolution, add, GELU": (convolution_bias_gelu, (X, KERNEL, BIAS), ("conv2d", "add", "gelu")),
    "convolution, batch norm, ReLU": (convolution_norm, (X, KERNEL, *STATISTICS), ("conv2d", "batch_norm", "relu")),
    "convolution, batch norm, residual add, ReLU": (
        convolution_norm_residual, (X, KERNEL, *STATISTICS),
        ("conv2d", "batch_norm", "add", "relu"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("last", [False, True], ids=["", "channels-last"])
@pytest.mark.parametrize("title", FORMS)
def test_a_convolution_with_its_tail_is_one_region_and_its_text_computes_it(
    title: str, last: bool, tmp_path: Path
) -> None:
    """On a GPU the result lies as the image does; where it is channels-last no size tells it from its reader's."""
    function, args, operations = FORMS[title]
    if last:
        args = tuple(a.to(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args)
    (region,) = mined(tmp_path / "t.json", function, *args).regions
    assert (region.title, region.operations) == (title, operations)
    assert region.text is not None, region.missing
    if function is not convolution_bias_gelu:  # its bias is a view
        built = program(parse(region.text))
        order = args if len(args) < 6 else (*args[:2], *_as_written(region, args[2:]))
        torch.testing.assert_close(built.module(*order)[0], function(*args), rtol=1e-4, atol=1e-4)


def _as_written(region: MinedRegion, statistics: tuple[Tensor, ...]) -> list[Tensor]:
    """Mean, variance, weight and bias in the order in which the text declares them."""
    mean, var, g, b = statistics
    named = {"mean": mean, "var": var, "w2": g, "b": b}
    names = [line.split(":")[0] for line in (region.text or "").splitlines() if ": " in line]
    return [named[n] for n in names if n in named]


def test_what_counts_batches_does_not_cut_a_block_and_equal_blocks_are_one_region(tmp_path: Path) -> None:
    block = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    model = nn.Sequential(*(block for _ in range(4)))
    regions = mined(tmp_path / "t.json", model, X).regions
    assert [(r.title, r.calls_per_step) for r in regions if r.operations[0] != "add_"] == [
        ("convolution, batch norm, ReLU", 4)
    ]


def test_blocks_of_several_widths_are_one_region_of_several_bindings(tmp_path: Path) -> None:
    def block(wide: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())

    blocks, inputs = [block(w) for w in (8, 16, 32)], [torch.randn(2, w, SIZE, SIZE) for w in (8, 16, 32)]

    def model() -> None:
        for one, x in zip(blocks, inputs, strict=True):
            one(x)

    regions = [r for r in mined(tmp_path / "t.json", model).regions if r.operations[0] == "conv2d"]
    assert [(r.title, r.calls_per_step, len(r.shapes)) for r in regions] == [("convolution, batch norm, ReLU", 3, 3)]


def test_backward_of_a_block_is_in_its_region_with_all_its_kernels(tmp_path: Path) -> None:
    block = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    x, upstream = X.clone().requires_grad_(), torch.randn_like(X)

    def train() -> None:
        block(x).backward(upstream)

    mining = mined(tmp_path / "t.json", train)
    region = next(r for r in mining.regions if r.kind == "convolution_tail")
    assert (region.title, region.backward) == ("convolution, batch norm, ReLU", True)
    assert region.kernels_per_call == 6  # three operations, each with one for its gradients
    assert region.backward_time_us_per_step == pytest.approx(region.time_us_per_step / 2)
    assert {r.title for r in mining.regions if r is not region and r.backward} == {"gradient accumulation"}


def test_a_convolution_alone_and_one_before_a_row_norm_stay_alone(tmp_path: Path) -> None:
    """LayerNorm goes along the channels: torch.compile writes it by itself, and cuDNN has the convolution."""

    def model(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
        return F.layer_norm(F.conv2d(x, w, padding=1).permute(0, 2, 3, 1), (CHANNELS,), g)

    titles = [r.title for r in mined(tmp_path / "t.json", model, X, KERNEL, BIAS).regions]
    assert sorted(titles) == ["LayerNorm", "convolution"]


def test_dropout_behind_an_activation_is_of_the_product_and_before_a_norm_of_the_norm(tmp_path: Path) -> None:
    up, down = torch.randn(64, 32), torch.randn(32, 64)

    def mlp(x: Tensor) -> Tensor:
        hidden = F.dropout(F.gelu(F.linear(x, up)), 0.1)
        return F.layer_norm(x + F.dropout(F.linear(hidden, down), 0.1), (32,))

    titles = [r.title for r in mined(tmp_path / "t.json", mlp, torch.randn(4, 16, 32)).regions]
    assert sorted(titles) == ["GEMM", "GEMM with GELU and dropout tail", "dropout, residual add, LayerNorm"]
