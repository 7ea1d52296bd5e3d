"""A template that is up in a fraction of a second: it imports tests.profiler.child.work, which imports nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from profiler.child.lines import LineChild
from profiler.child.process import FD, FORK
from profiler.child.template import Template
from tests.conftest import ROOT

WORK = "tests.profiler.child.work"

Serving = Callable[[], LineChild]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """One for the tests of a module that leave it alive."""
    made = Template(WORK, cwd=ROOT)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_template() -> Iterator[Template]:
    """One for a test that kills it."""
    made = Template(WORK, cwd=ROOT)
    yield made
    made.stop()


@pytest.fixture
def serving(template: Template) -> Iterator[Serving]:
    """Makes forks that answer lines."""
    with ExitStack() as made:

        def make() -> LineChild:
            child = LineChild([FORK, "serve", FD], log=None, template=template)
            made.callback(child.close)
            return child

        yield make
