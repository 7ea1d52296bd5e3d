"""The models of benchmarks/validation/blocks.py run what their traces show: the same operations on the same shapes, as
often."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402 (torch is wanted, not required)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from benchmarks.validation.blocks import CASES, make  # noqa: E402
from profiler.trace import read_trace  # noqa: E402

SDPA = "aten::scaled_dot_product_attention"
WORK = {
    f"aten::{name}"
    for name in """_softmax _to_copy add addmm arange bmm cat convolution cos div embedding gelu le mean mm mul
    native_layer_norm neg pow rsqrt silu sin""".split()
} | {SDPA}  # fmt: skip
"""Operations that launch kernels. Not `clone`: whether the result of attention is copied is up to its back end.
Not `where`: with a number it calls itself, and the trace has both."""


class Shapes(TorchDispatchMode):
    """Counts operations by name and tensors' shapes, as record_shapes writes them."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def note(self, name, args):
        self.seen[name, tuple(s for a in args if (s := shape(a)) is not None)] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.note(func._schema.name, args)
        return func(*args, **(kwargs or {}))


class Attention(TorchFunctionMode):
    """SDPA as one operation: on meta tensors it would be taken apart otherwise than on a GPU."""

    def __init__(self, shapes):
        super().__init__()
        self.shapes = shapes

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.shapes.note(SDPA, args)
            return torch.empty_like(args[0])
        return func(*args, **(kwargs or {}))


def shape(value):
    """A tensor's sizes, those of a list of tensors, None for what is neither or a scalar."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape) or None
    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
        return tuple(tuple(v.shape) for v in value)
    return None


def of_model(name):
    model, inputs = make(name, False, "meta")
    shapes = Shapes()
    with torch.no_grad(), shapes, Attention(shapes):
        model(*inputs)
    return Counter({key: n for key, n in shapes.seen.items() if key[0] in WORK})


def of_trace(path):
    """The same counts of one step; a trace's scalars have no sizes. What has no element yet is no work: results that
    are resized later, the first contents of a cache."""
    trace = read_trace(path)
    seen = Counter()
    for name, detail in zip(trace.ops.name, trace.ops.detail, strict=True):
        if trace.names[name] in WORK:
            dims = trace.details[detail].dims
            key = trace.names[name], tuple(tuple(d) for d in dims if d)
            if (0,) not in dims and key != ("aten::_to_copy", ()):  # a number on its way to the GPU
                seen[key] += 1
    assert all(n % len(trace.steps) == 0 for n in seen.values())
    return Counter({key: n // len(trace.steps) for key, n in seen.items()})


@pytest.mark.parametrize("name", CASES)
def test_a_step_has_the_operations_of_its_trace_on_the_same_shapes(name, data):
    path = data / "traces" / f"{CASES[name].trace}.json.gz"
    ours, recorded = of_model(name), of_trace(path)
    assert sum(recorded.values()) > 50
    assert (ours - recorded, recorded - ours) == (Counter(), Counter())


@pytest.mark.parametrize("name", CASES)
def test_a_float64_reference_is_near_and_not_equal(name):
    model, inputs = make(name, True, "cpu")
    with torch.no_grad():
        got = model(*inputs)
        wide = model.double()(*(t.double() if t.is_floating_point() else t for t in inputs))
    assert wide.dtype == torch.float64
    error = ((got - wide).norm() / wide.norm()).item()
    assert 1e-5 < error < 0.1
