"""Every row's maker by its name."""

from __future__ import annotations

from collections.abc import Callable

from tools.corpus.recording.libraries import make_graph, make_timm, make_torchvision, make_transformers
from tools.corpus.recording.made import Made, Place
from tools.corpus.recording.plain import (
    contrastive,
    discriminator,
    dit,
    dlrm,
    fftconv,
    int8_linear,
    lstm_cells,
    make_plain,
    mlp,
    nerf,
    pointnet,
    retention,
    rnn,
    super_resolution,
    unet,
    vae_decoder,
    vqvae,
    wavenet,
)
from tools.corpus.recording.rows import Row

MAKERS: dict[str, Callable[[Row, Place], Callable[[], Made]]] = {
    "transformers": make_transformers, "torchvision": make_torchvision, "timm": make_timm, "graph": make_graph,
} | {
    f.__name__: make_plain(f)
    for f in (
        unet, dit, vae_decoder, dlrm, rnn, lstm_cells, pointnet, nerf, wavenet, vqvae, mlp, fftconv, retention,
        int8_linear, contrastive, super_resolution, discriminator,
    )
}  # fmt: skip
