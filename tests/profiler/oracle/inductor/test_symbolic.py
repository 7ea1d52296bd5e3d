"""How often sizes that vary are compiled anew, against torch.compile itself counting its graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

from profiler.oracle.inductor.symbolic import recompiles
from profiler.region.language.text import parse
from tests.profiler.oracle.asking import device

X = "x: f32[N, 64]\n"


def loop(x: torch.Tensor) -> torch.Tensor:
    hidden = x[0]
    for i in range(x.shape[0]):
        hidden = hidden * 2 + x[i]
    return hidden


CASES: list[tuple[str, list[int], Callable[[torch.Tensor], torch.Tensor]]] = [
    (X + "return gelu(x) * 2\n", [64, 128, 37, 300], lambda x: F.gelu(x) * 2),
    (X + "return gelu(x) * 2\n", [64, 128, 1, 1], lambda x: F.gelu(x) * 2),  # 1 is a size of its own
    (X + "return gelu(x) * 2\n", [64, 64, 64], lambda x: F.gelu(x) * 2),
    (X + "return x.sum(0)\n", [100, 5000, 4096], lambda x: x.sum(0)),
    (X + "return softmax(x, 0).reshape(N * 2, 32)\n", [8, 16, 24],
     lambda x: torch.softmax(x, 0).reshape(x.shape[0] * 2, 32)),
    (X + "h = x[0]\nfor i in range(N):\n    h = h * 2 + x[i]\nreturn h\n", [2, 4, 6], loop),
    (X + "y: f32[128, 64]\nreturn x + y\n", [128, 128], lambda x: x + torch.zeros(128, 64)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_as_many_graphs_as_torch_compile_makes(case: int) -> None:
    text, sizes, function = CASES[case]
    asked = recompiles(parse(f"N: sizes{sizes}\n{text}"), device())
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, backend=counter)
    for size in sizes:
        compiled(torch.randn(size, 64))
    assert asked.graphs == counter.frame_count, asked


def test_sizes_that_were_equal_by_chance_are_two_symbols() -> None:
    sizes = ((8, 8), (16, 16), (32, 64))
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: x * 2, backend=counter)
    for n, m in sizes:
        compiled(torch.randn(n, m))
    ns, ms = ([s[i] for s in sizes] for i in range(2))
    asked = recompiles(parse(f"N: sizes{ns}\nM: sizes{ms}\nx: f32[N, M]\nreturn x * 2\n"), device())
    assert asked.graphs == counter.frame_count


def test_a_symbolic_graph_is_shown_as_inductor_wrote_it() -> None:
    asked = recompiles(parse("N: sizes[64, 128, 37]\n" + X + "return gelu(x) * 2\n"), device())
    assert asked.served == (0, 1, 1) and asked.recompiled == 1 and not asked.gives_up
    assert asked.symbolic is not None and asked.symbolic.symbolic
    assert asked.symbolic.signature == ((("pointwise", 1),), ())


def test_sizes_that_have_to_be_numbers_are_compiled_each_and_that_is_said() -> None:
    sizes = list(range(2, 12))
    asked = recompiles(parse(f"N: sizes{sizes}\n{CASES[5][0]}"), device())
    assert asked.graphs == 10 and asked.gives_up and asked.limit == torch._dynamo.config.recompile_limit
    assert "range takes whole numbers" in asked.because


def test_training_with_varying_sizes_says_why_there_is_no_symbolic_graph() -> None:
    asked = recompiles(parse("N: sizes[64, 128]\nx: f32[N, 64].requires_grad\nreturn gelu(x)\n"), device())
    assert asked.graphs == 2 and "forward regions only" in asked.because
