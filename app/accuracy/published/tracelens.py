"""The operations of TraceLens's performance reports, in the region language: what PyTorch's kernels take in a trace.

A row's config has the sizes; its time is the operation's kernels alone, without the host and without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.accuracy.published.model import Row

DTYPES = {"c10::BFloat16": "bf16", "c10::Half": "f16", "float": "f32"}


def region_of(row: Row) -> str:
    """What the operation does, as text; "" for one that is not written here."""
    made = _REGIONS.get(row.kernel)
    return made(row.config) if made is not None else ""


def _right(config: Mapping[str, int | float | str], batch: str) -> tuple[str, str]:
    """(line of the right factor, its name in the product). turned: its memory has the columns one after another."""
    wide, inner = config["N"], config["K"]
    sizes, name = (f"{wide}, {inner}", "w.transpose(-2, -1)") if config["turned"] else (f"{inner}, {wide}", "w")
    return f"w: {config['dtype']}[{batch}{sizes}]\n", name


def _product(config: Mapping[str, int | float | str]) -> str:
    line, right = _right(config, "")
    return f"x: {config['dtype']}[{config['M']}, {config['K']}]\n{line}return x @ {right}\n"


def _product_with_bias(config: Mapping[str, int | float | str]) -> str:
    line, right = _right(config, "")
    factors = f"b: {config['dtype']}[{config['N']}]\nx: {config['dtype']}[{config['M']}, {config['K']}]\n{line}"
    return f"{factors}return torch.addmm(b, x, {right})\n"


def _products(config: Mapping[str, int | float | str]) -> str:
    line, right = _right(config, f"{config['B']}, ")
    return f"x: {config['dtype']}[{config['B']}, {config['M']}, {config['K']}]\n{line}return torch.bmm(x, {right})\n"


def _attention(config: Mapping[str, int | float | str]) -> str:
    queries = f"{config['dtype']}[{config['B']}, {config['H']}, {config['M']}, {config['K']}]"
    keys = f"{config['dtype']}[{config['B']}, {config['H']}, {config['N']}, {config['K']}]"
    causal = ", is_causal=True" if config["causal"] else ""
    return f"q: {queries}\nk: {keys}\nv: {keys}\nreturn F.scaled_dot_product_attention(q, k, v{causal})\n"


def _layer_norm(config: Mapping[str, int | float | str]) -> str:
    dtype, width = config["dtype"], config["N"]
    weights = f"w: {dtype}[{width}]\nb: {dtype}[{width}]\n"
    return f"x: {dtype}[{config['M']}, {width}]\n{weights}return layer_norm(x, ({width},), w, b, 1e-6)\n"


_REGIONS: Mapping[str, Callable[[Mapping[str, int | float | str]], str]] = {
    "mm": _product, "addmm": _product_with_bias, "bmm": _products, "attention": _attention, "layer_norm": _layer_norm,
}  # fmt: skip
