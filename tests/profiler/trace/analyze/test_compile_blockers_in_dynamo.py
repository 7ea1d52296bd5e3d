"""The obstacles' words held to torch itself: what is said to break a graph breaks it, and each remedy mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo as dynamo
import torch._inductor.config
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from profiler.trace import read_trace
from profiler.trace.analyze.compile_blocker_kinds import KINDS
from profiler.trace.analyze.compile_blockers import CompileBlocker, find_compile_blockers

pytestmark = pytest.mark.filterwarnings("ignore")  # deprecations of TorchScript, quantisation and sparse layouts

X = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
MASK = X > 0
COUNTS = torch.tensor([1, 2, 3])
LSTM = torch.nn.LSTM(8, 8)
SCALARS, SIZES, RNN = "capture_scalar_outputs", "capture_dynamic_output_shape_ops", "allow_rnn"


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    yield
    dynamo.reset()
    counters.clear()


def graphs(function: Callable[..., object], *args: object, **config: object) -> tuple[int, bool]:
    """(graphs that torch.compile made of one call, whether all of it went into one without a break)."""
    dynamo.reset()
    counters.clear()
    made = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        made.append(module)
        return module.forward

    with dynamo.config.patch(**config) if config else dynamo.config.patch({}):
        torch.compile(function, backend=backend)(*args)
    return len(made), len(made) == 1 and not counters["graph_break"]


def branch(x: torch.Tensor) -> torch.Tensor:
    if (x > 0).any():
        return x + 1
    return x - 1


def written_by_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[mask] = 0.0
    return y


class Doubled(torch.nn.Module):
    """A module to script."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


BREAKS: dict[str, tuple[str, Callable[..., object], tuple[object, ...]]] = {
    "item": ("scalar-read", lambda x: x * x.sum().item(), (X,)),
    "float": ("scalar-read", lambda x: x * float(x.sum()), (X,)),
    "if": ("tensor-branch", branch, (X,)),
    "equal": ("value-comparison", lambda x: x + torch.equal(x, x + 1), (X,)),
    "allclose": ("value-comparison", lambda x: x + torch.allclose(x, x), (X,)),
    "nonzero": ("data-dependent-size", lambda m: torch.nonzero(m) + 1, (MASK,)),
    "x[mask]": ("data-dependent-size", lambda x, m: x[m] + 1, (X, MASK)),
    "masked_select": ("data-dependent-size", lambda x, m: torch.masked_select(x, m) + 1, (X, MASK)),
    "unique": ("data-dependent-size", lambda n: torch.unique(n) + 1, (COUNTS,)),
    "bincount": ("data-dependent-size", lambda n: torch.bincount(n) + 1, (COUNTS,)),
    "repeat_interleave": ("data-dependent-size", lambda n: torch.repeat_interleave(n, n) + 1, (COUNTS,)),
    "one_hot": ("data-dependent-size", lambda n: torch.nn.functional.one_hot(n) + 1, (COUNTS,)),
    "lstm": ("recurrent", lambda x: LSTM(x)[0] + 1, (X,)),
    "resize_": ("resize", lambda x: x.clone().resize_(4, 4) + 1, (X,)),
    "sparse": ("sparse", lambda s, x: torch.sparse.mm(s, x) + 1, (X.to_sparse(), X)),
}


@pytest.mark.parametrize("case", BREAKS)
def test_what_is_said_to_break_the_graph_breaks_it(case: str):
    kind, function, args = BREAKS[case]
    assert KINDS[kind].effect == "break"
    assert not graphs(function, *args)[1]


WHOLE: dict[str, tuple[Callable[..., object], tuple[object, ...], dict[str, object]]] = {
    "item, captured": (lambda x: x * x.sum().item(), (X,), {SCALARS: True}),
    "item, kept a tensor": (lambda x: x * x.sum(), (X,), {}),
    "if as cond": (lambda x: torch.cond((x > 0).any(), lambda y: y + 1, lambda y: y - 1, (x,)), (X,), {}),
    "if as where": (lambda x: torch.where((x > 0).any(), x + 1, x - 1), (X,), {}),
    "equal as all": (lambda x: x + (x == x + 1).all(), (X,), {}),
    "x[mask] as where": (lambda x, m: torch.where(m, x, 0.0), (X, MASK), {}),
    "x[mask], captured": (lambda x, m: x[m] + 1, (X, MASK), {SIZES: True}),
    "unique, captured": (lambda n: torch.unique(n) + 1, (COUNTS,), {SIZES: True}),
    "bincount, captured": (lambda n: torch.bincount(n) + 1, (COUNTS,), {SIZES: True}),
    "bincount as index_add": (lambda n: torch.zeros(9).index_add(0, n, torch.ones(3)), (COUNTS,), {}),
    "nonzero_static": (lambda m: torch.nonzero_static(m, size=64) + 1, (MASK,), {}),
    "output_size": (lambda n: torch.repeat_interleave(n, n, output_size=6) + 1, (COUNTS,), {}),
    "num_classes": (lambda n: torch.nn.functional.one_hot(n, num_classes=5) + 1, (COUNTS,), {}),
    "lstm, allowed": (lambda x: LSTM(x)[0] + 1, (X,), {RNN: True}),
    "x[mask] = 0": (written_by_mask, (X, MASK), {}),
    "copy to the host": (lambda x: (x + 1).cpu() + 1, (X,), {}),
    "write into a view": (lambda x: x.clone()[:, 2:4].copy_(x[:, :2]) + 1, (X,), {}),
    "synchronise": (lambda x: (torch.cpu.synchronize(), x + 1)[1], (X,), {}),
    "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x.view(8, 4, 2)) * 2), (X,), {}),
}


@pytest.mark.parametrize("case", WHOLE)
def test_each_remedy_keeps_the_graph_whole(case: str):
    function, args, config = WHOLE[case]
    assert graphs(function, *args, **config) == (1, True)


def test_no_setting_takes_a_branch_or_a_comparison_into_the_graph():
    assert not graphs(branch, X, **{SCALARS: True, SIZES: True})[1]
    assert not graphs(lambda x: x + torch.equal(x, x + 1), X, **{SCALARS: True, SIZES: True})[1]


def test_fullgraph_captures_scalars_and_sizes():
    compiled = torch.compile(lambda x, m: x[m] * x.sum().item(), backend="eager", fullgraph=True)
    assert compiled(X, MASK).shape == (int(MASK.sum()),)


def test_code_that_asks_whether_it_is_compiled_is_not_affected():
    def guarded(x: torch.Tensor) -> torch.Tensor:
        return branch(x) if not torch.compiler.is_compiling() else x + 1

    assert graphs(guarded, X) == (1, True)


def test_a_custom_operation_breaks_the_graph_until_it_has_a_fake():
    library = torch.library.Library("tritonworthy_test", "DEF")
    library.define("opaque(Tensor x) -> Tensor")
    library.impl("opaque", lambda x: x * 2, "CPU")

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tritonworthy_test.opaque(x + 1) + 1

    assert not graphs(function, X)[1]
    torch.library.register_fake("tritonworthy_test::opaque", torch.empty_like, lib=library)
    assert graphs(function, X) == (1, True)
    library._destroy()


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_a_scripted_module_breaks_the_graph_and_a_scripted_function_does_not():
    module = torch.jit.script(Doubled())
    assert KINDS["torchscript"].effect == "break"
    assert not graphs(lambda x: module(x) + 1, X)[1]
    function = torch.jit.script(doubled)
    assert graphs(lambda x: function(x) + 1, X)[1]


def test_packed_weights_break_the_graph():
    layer = torch.ao.nn.quantized.dynamic.Linear(8, 8)
    assert not graphs(lambda x: layer(x) + 1, X)[1]


def compilations(sizes: range, *, marked: bool = False, **options: object) -> int:
    made = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        made.append(module)
        return module.forward

    compiled = torch.compile(lambda x: (x * 2).sum(), backend=backend, **options)
    for size in sizes:
        x = torch.randn(size, 4)
        if marked:
            dynamo.mark_dynamic(x, 0)
        compiled(x)
    return len(made)


def test_sizes_that_change_compile_twice_once_if_marked_and_each_time_if_static():
    assert dynamo.config.recompile_limit == 8
    assert compilations(range(10, 30)) == 2
    dynamo.reset()
    assert compilations(range(10, 30), marked=True) == 1
    dynamo.reset()
    assert compilations(range(10, 30), dynamic=True) == 1
    dynamo.reset()
    assert compilations(range(10, 30), dynamic=False) == 8


def test_inductor_splits_cuda_graphs_at_the_host_and_makes_no_code_for_complex_numbers():
    from torch._inductor.lowering import unsupported_output_tensor

    assert torch._inductor.config.graph_partition
    assert unsupported_output_tensor(torch.empty(1, dtype=torch.complex64))


def test_the_collectives_that_go_into_the_graph_are_those_that_are_named():
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    names = {f.__name__ for f in functional.traceable_collective_remaps}
    assert {"all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"} <= names
    assert not {"broadcast", "barrier"} & names


def recorded(folder: Path, run: Callable[[], object]) -> dict[str, CompileBlocker]:
    """Obstacles of a trace recorded here and now, by the operation."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    trace = read_trace(path)
    return {o.op: o for o in find_compile_blockers(trace, trace.steps)}


def test_graph_breaks_that_happened_are_read_off_a_trace_with_what_broke_them(tmp_path: Path):
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if (y > 0).any():
            y = y + 1
        return y.cos() * 3 + torch.nonzero(x > 0).sum()

    def whole(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() + 1

    compiled, other = torch.compile(broken, backend="aot_eager"), torch.compile(whole, backend="aot_eager")
    other(compiled(X))
    found = recorded(tmp_path, lambda: other(compiled(X)))
    assert {o.kind for o in found.values()} == {"compiled-in-parts"}
    assert {op: o.calls_per_step for op, o in found.items()} == {"aten::is_nonzero": 1.0, "aten::nonzero": 1.0}


def test_recompilations_are_read_off_a_trace(tmp_path: Path):
    compiled = torch.compile(lambda x: (x * 2).sum(), backend="aot_eager", dynamic=False)
    for size in (3, 4, 5):
        compiled(torch.ones(size))
    found = recorded(tmp_path, lambda: [compiled(torch.ones(size)) for size in (3, 4, 5)])
    [again] = found.values()
    assert again.kind == "recompiled"
    assert again.because.startswith("frame 0 in 3 variants")
