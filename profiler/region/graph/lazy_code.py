"""Graph modules without their code: torch writes and compiles the Python of each at once, which takes a millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.fx
from torch.fx import _lazy_graph_module as lazy


@contextmanager
def code_when_run() -> Iterator[None]:
    """Modules made inside get their code when they are first called: for graphs that are only looked at."""
    with lazy._use_lazy_graph_module(True):
        yield


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph, name: str = "GraphModule") -> torch.fx.GraphModule:
    """A module of the graph, with what its nodes name taken from `root`. Inside of `code_when_run` without its code."""
    return lazy._make_graph_module(root, graph, name)
