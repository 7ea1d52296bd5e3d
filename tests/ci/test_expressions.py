"""The expressions of the step runner, by the examples of GitHub's reference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ci.expressions import evaluate, filled, holds

CONTEXT = {"inputs": {"name": "Mona", "empty": ""}, "steps": {"check": {"outputs": {"exit-code": "2"}}}}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.name", "Mona"),
        ("inputs.none", ""),
        ("steps.none.outputs.x", ""),
        ("steps.check.outputs.exit-code == '2'", True),
        ("inputs.name == 'mona'", True),
        ("inputs.name != 'octocat' && !inputs.empty", True),
        ("inputs.empty || 'It''s open'", "It's open"),
        ("!(inputs.name == 'Mona') || inputs.empty == ''", True),
        ("failure()", False),
    ],
)
def test_an_expression_has_the_value_of_the_reference(expression: str, value: Any) -> None:
    assert evaluate(expression, CONTEXT) == value


@pytest.mark.parametrize("expression", ["hashFiles('x')", "inputs.name ==", "1 +", "inputs['name']", "a b", "(a"])
def test_what_the_runner_does_not_know_is_refused(expression: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        evaluate(expression, CONTEXT)


def test_expressions_in_a_text() -> None:
    assert filled("${{ inputs.name }}/${{inputs.none}}x", CONTEXT) == "Mona/x"


@pytest.mark.parametrize(
    ("condition", "failed", "run"),
    [
        (None, False, True),
        (None, True, False),
        ("inputs.name == 'Mona'", True, False),
        ("always() && inputs.name == 'Mona'", True, True),
        ("${{ failure() }}", True, True),
        ("failure()", False, False),
    ],
)
def test_a_step_after_one_that_failed_is_run_where_it_says_so(condition: str | None, failed: bool, run: bool) -> None:
    assert holds(condition, CONTEXT, failed) is run
