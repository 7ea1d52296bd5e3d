"""What CUDA refuses and fake mode accepts, and how operations and operands are named in errors."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from profiler.region import vocabulary
from profiler.region.syntax import error

SAME_DTYPE = frozenset({torch.mm, torch.matmul, torch.bmm, F.linear, operator.matmul, torch.addmm, torch.baddbmm})
"""CUDA refuses mixed dtypes in these; fake mutes the complaint for some."""
FLOAT_ONLY = frozenset({F.gelu, F.silu, F.softmax, torch.softmax, F.log_softmax, torch.log_softmax, F.layer_norm})
FLOAT_ONLY_METHODS = frozenset({"softmax", "log_softmax"})
INTEGER_ONLY = frozenset({operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift})
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOAT8_ALLOWED = frozenset({"to", "float", "half", "bfloat16", "view", "t", "T", "reshape", "transpose", "contiguous"})


def label_of(target: Any) -> str:
    """As the user would name it: gelu, @, add."""
    if isinstance(target, str):
        return target
    name = str(getattr(target, "__name__", target)).removeprefix("aten.").removeprefix("aten::")
    return {"truediv": "div", "getitem": "index"}.get(name, name)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples and lists, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def refuse(node: ast.AST, target: Any, args: Any, kwargs: Any) -> None:
    """What CUDA refuses and fake mode accepts."""
    tensors = list(tensors_in(args))
    name = target if isinstance(target, str) else ""
    if (target in SAME_DTYPE or name in ("matmul", "mm", "bmm")) and len({t.dtype for t in tensors}) > 1:
        dtypes = " and ".join(sorted({vocabulary.DTYPE_NAMES.get(t.dtype, str(t.dtype)) for t in tensors}))
        raise error(node, f"a matrix product of {dtypes}: dtypes must be equal", code="region-dtype",
                    hint="cast one with .to(bf16)")  # fmt: skip
    if (target in FLOAT_ONLY or name in FLOAT_ONLY_METHODS) and tensors and not tensors[0].is_floating_point():
        wide = kwargs.get("dtype") is not None
        if not wide:
            raise error(node, f"{label_of(target)} needs a floating type", code="region-dtype")
    if target in INTEGER_ONLY and any(t.is_floating_point() for t in tensors):
        raise error(node, "bitwise operators need integers or bool", code="region-dtype")
    if label_of(target) in ("softmax", "log_softmax") and tensors:
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        if isinstance(dim, int) and not -max(1, tensors[0].dim()) <= dim < max(1, tensors[0].dim()):
            raise error(node, f"dimension {dim} of a tensor of {tensors[0].dim()} dimensions", code="region-shape")
    if tensors and any(t.dtype in FLOAT8 for t in tensors):
        allowed = name in FLOAT8_ALLOWED or "scaled" in label_of(target) or target is operator.getitem
        if not allowed and label_of(target) not in ("cat", "stack", "index_select", "chunk", "split"):
            raise error(node, f"{label_of(target)} does not take fp8", hint="cast with .float()", code="region-dtype")
    for text in (a for a in [*args, *kwargs.values()] if isinstance(a, str)):
        equation = "einsum" in label_of(target) and re.fullmatch(r"[a-zA-Z.,\s]+(->[a-zA-Z.\s]*)?", text)
        if text not in vocabulary.STRINGS and not equation:
            raise error(node, f"{text[:30]!r} is no option", code="region-type")
