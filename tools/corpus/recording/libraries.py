"""Models of transformers, torchvision, timm and torch_geometric: each imported when a row wants it.

A maker takes a row and the place and gives a function that builds on the device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

from tools.corpus.recording.made import DTYPES, Made, Place, loss_of, tensors_of
from tools.corpus.recording.rows import Row

DEPTH = 2
DEPTHS = (
    "num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_layers", "num_encoder_layers",
)  # fmt: skip
WIDTHS = frozenset(
    """hidden_size intermediate_size head_dim n_embd d_model d_kv d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim
    moe_intermediate_size word_embed_proj_dim attention_hidden_size embedding_size ffn_hidden_size lru_width
    shared_expert_intermediate_size vocab_size d_inner dim hidden_dim""".split()
)
TINY = 8


def make_transformers(row: Row, place: Place) -> Callable[[], Made]:
    """Of a configuration with widths as in practice and DEPTH layers."""
    transformers: Any = import_module("transformers")

    spec = row.spec
    model_class = getattr(transformers, spec["model"])
    config_class = getattr(transformers, spec["config"]) if spec["config"] else model_class.config_class
    options = dict(spec["options"])
    depth_free = options.pop("depth_free", False)
    features = options.pop("backbone_features", ["stage4"])
    if options.get("backbone_config") == "ResNetConfig":
        options["backbone_config"] = transformers.ResNetConfig(out_features=features, depths=[1, 1, 1, 1])
    default = config_class()
    known = {k: v for k, v in default.to_dict().items() if not isinstance(v, bool)}
    if not depth_free:
        options = {k: min(v, DEPTH) for k in DEPTHS if isinstance(v := known.get(k), int)} | options
    if place.tiny:
        for key in WIDTHS:
            value = options.get(key, known.get(key))
            if isinstance(value, int) and value >= 16 * TINY:
                options[key] = value // TINY
    config = config_class(**options)
    vocabulary = getattr(config, "vocab_size", None) or 1000

    def build() -> Made:
        dtype = getattr(torch, DTYPES[row.dtype])
        chosen = {"attn_implementation": row.attention} if row.attention else {}
        with torch.device(place.device):
            model = model_class._from_config(config, dtype=dtype, **chosen)
        model.to(place.device)
        if hasattr(model.config, "use_cache") and row.mode == "train":
            model.config.use_cache = False
        batch = place.batch(row)
        size = min(row.size, 32) if place.tiny and "ids:b,s" in spec["inputs"] else row.size
        given = read_inputs(spec["inputs"], batch, size, vocabulary, dtype, place.device)
        if row.mode == "decode":
            cache = model(**given, use_cache=True).past_key_values
            given = {"input_ids": given["input_ids"][:, -1:], "past_key_values": cache}
        return Made(model, lambda: loss_of(model(**given)) if row.mode == "train" else model(**given))

    return build


def read_inputs(text: str, batch: int, size: int, vocabulary: int, dtype: Any, device: str) -> dict[str, Any]:
    """`name=kind:sizes` of each input: b is the batch, s the size. ids are below the vocabulary, belowN below N."""
    made: dict[str, Any] = {}
    for item in text.split():
        name, _, what = item.partition("=")
        kind, _, sizes = what.partition(":")
        if kind == "true":
            made[name] = True
            continue
        known = {"b": batch, "s": size, "s/4": max(1, size // 4)}
        shape = [known[s] if s in known else int(s) for s in sizes.split(",")]
        if kind == "ids" or kind.startswith("below"):
            below = vocabulary if kind == "ids" else int(kind[5:])
            made[name] = torch.randint(min(3, below - 2), below - 1 if below > 2 else 2, shape, device=device)
        elif kind == "mask":
            lengths = torch.linspace(0.5, 1.0, shape[0], device=device).mul(shape[1]).ceil().long()
            made[name] = (torch.arange(shape[1], device=device) < lengths[:, None]).long()
        elif kind == "ones":
            made[name] = torch.ones(shape, device=device, dtype=dtype)
        else:
            made[name] = torch.randn(shape, device=device, dtype=dtype)
    return made


def make_torchvision(row: Row, place: Place) -> Callable[[], Made]:
    """Of torchvision.models, by a dotted path."""
    torchvision: Any = import_module("torchvision")

    maker: Any = torchvision.models
    for part in row.spec["model"].split("."):
        maker = getattr(maker, part)
    backbone = {"weights_backbone": None} if "weights_backbone" in inspect.signature(maker).parameters else {}

    def build() -> Made:
        with torch.device(place.device):
            model = maker(weights=None, **backbone)
        return make_images(model, row, place)

    return build


def make_timm(row: Row, place: Place) -> Callable[[], Made]:
    """Of timm, by its name there."""
    timm: Any = import_module("timm")

    def build() -> Made:
        with torch.device(place.device):
            model = timm.create_model(row.spec["model"], pretrained=False)
        return make_images(model, row, place)

    return build


def make_images(model: Any, row: Row, place: Place) -> Made:
    """The model in its type and layout, called on random images, clips or pairs of images."""

    dtype = getattr(torch, DTYPES[row.dtype])
    model = model.to(place.device, dtype)
    known = {"b": place.batch(row), "s": row.size // 2 if place.tiny and row.maker == "torchvision" else row.size}
    shape = [known[s] if s in known else int(s) for s in row.spec.get("shape", "b,3,s,s").split(",")]
    images = torch.randn(shape, device=place.device, dtype=dtype)
    if row.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    if "optical_flow" in str(row.spec["model"]):
        return Made(model, lambda: model(images, images.flip(0), num_flow_updates=2))
    if "detection" in str(row.spec["model"]):
        return Made(model, lambda: model(list(images)))
    classes = 21 if "segmentation" in row.spec["model"] else 400 if "video" in row.spec["model"] else 1000
    places = shape[:1] + (shape[2:] if classes == 21 else [])
    labels = torch.randint(0, classes, places, device=place.device)

    def call() -> Any:
        output = model(images)
        if row.mode != "train":
            return output
        return F.cross_entropy(tensors_of(output)[0], labels)

    return Made(model, call)


def make_graph(row: Row, place: Place) -> Callable[[], Made]:
    """Two layers of torch_geometric on a random graph."""
    gnn: Any = import_module("torch_geometric.nn")

    spec = row.spec

    def layer(given: int, width: int, edges: Any) -> Any:
        name = spec["layer"]
        if name == "GINConv":
            part = torch.nn
            return gnn.GINConv(
                part.Sequential(
                    part.Linear(given, 2 * width),
                    part.BatchNorm1d(2 * width),
                    part.ReLU(),
                    part.Linear(2 * width, width),
                )
            )
        if name == "PNAConv":
            degrees = torch.bincount(torch.bincount(edges[1]))
            kinds, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
            return gnn.PNAConv(given, width, kinds, scalers, degrees, towers=5 if given % 5 == 0 else 1)
        if name == "ChebConv":
            return gnn.ChebConv(given, width, K=3)
        if name == "RGCNConv":
            return gnn.RGCNConv(given, width, spec["relations"], num_bases=4)
        if name == "NNConv":
            return gnn.NNConv(given, width, torch.nn.Linear(8, given * width), aggr="mean")
        if "heads" in spec:
            return getattr(gnn, name)(given, width, heads=spec["heads"])
        return getattr(gnn, name)(given, width)

    def build() -> Made:
        dtype = getattr(torch, DTYPES[row.dtype])
        nodes = 500 if place.tiny else row.size
        with torch.device(place.device):
            edges = torch.randint(0, nodes, (2, nodes * row.batch))
            x = torch.randn(nodes, spec["features"], dtype=dtype)
            labels = torch.randint(0, 40, (nodes,))
            wide = spec["width"] * spec.get("heads", 1)
            first = layer(spec["features"], spec["width"], edges).to(place.device, dtype)
            second = layer(wide, spec["width"], edges).to(place.device, dtype)
            norm = torch.nn.LayerNorm(wide, dtype=dtype)
            head = torch.nn.Linear(wide, 40, dtype=dtype)
            more: tuple[Any, ...] = ()
            if spec["layer"] == "RGCNConv":
                more = (torch.randint(0, spec["relations"], (edges.shape[1],)),)
            if spec["layer"] == "NNConv":
                more = (torch.randn(edges.shape[1], 8, dtype=dtype),)
        model = torch.nn.ModuleList([first, norm, second, head])

        def call() -> Any:
            hidden = F.dropout(F.relu(norm(first(x, edges, *more))), 0.5, model.training)
            output = head(F.elu(second(hidden, edges, *more)))
            return F.cross_entropy(output, labels) if row.mode == "train" else output.log_softmax(-1)

        return Made(model, call)

    return build
