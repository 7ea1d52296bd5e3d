"""The bundled examples: traces recorded on an H200 for this project, and regions as people write them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """kind is "trace" or "region"; text is the region's, "" for a trace."""

    name: str
    kind: str
    title: str
    about: str
    file: str
    text: str = ""

    @property
    def path(self) -> Path:
        return FOLDER / self.file


_TRACES = (
    ("handrolled_blocks", "Hand-rolled transformer", "unfused RMSNorm, attention and GELU epilogue"),
    ("llama_eager_attention", "Llama, eager attention", "prefill with attention spelled out"),
    ("llama_prefill", "Llama prefill", "SDPA, RoPE, SwiGLU; stacks recorded"),
    ("vit_base", "ViT-Base inference", "mostly libraries already"),
)

_REGIONS = (
    ("gemm_gelu_mask", "GEMM, bias, GELU, mask"),
    ("rms_norm_by_hand", "Unfused RMSNorm"),
    ("attention_by_hand", "Unfused attention, with a bias"),
    ("swiglu", "SwiGLU"),
)

DEFAULT_REGION = "gemm_gelu_mask"


@cache
def examples() -> dict[str, Example]:
    """Every bundled example by name, traces first."""
    bundled = {n: Example(n, "trace", title, about, f"{n}.json.gz") for n, title, about in _TRACES}
    for name, title in _REGIONS:
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        bundled[name] = Example(name, "region", title, "", f"{name}.txt", text)
    return bundled
