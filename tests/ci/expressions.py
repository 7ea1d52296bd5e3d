"""GitHub's expressions, as far as the action uses them: properties, texts, comparisons, `!`, `&&`, `||`, and status.

From the published reference of expressions: what is not there is an empty text, and case does not count in comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<op>&&|\|\||==|!=|!|\(|\))|(?P<name>[A-Za-z_][\w.-]*))")
STATUS = {"success", "failure", "always", "cancelled"}
EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}", re.S)


def tokens(expression: str) -> list[str]:
    place, listed = 0, []
    expression = expression.strip()
    while place < len(expression):
        token = TOKEN.match(expression, place)
        if token is None:
            raise ValueError(f"not understood: {expression[place:]!r}")
        listed.append(token[0].strip())
        place = token.end()
    return listed


def evaluate(expression: str, context: Mapping[str, Any], failed: bool = False) -> Any:
    """The expression's value."""
    rest = tokens(expression)

    def take(expected: str | None = None) -> str:
        token = rest.pop(0)
        if expected is not None and token != expected:
            raise ValueError(f"{expected} is wanted, not {token}")
        return token

    def either() -> Any:
        value = both()
        while rest[:1] == ["||"]:
            take()
            other = both()
            value = value or other
        return value

    def both() -> Any:
        value = compared()
        while rest[:1] == ["&&"]:
            take()
            other = compared()
            value = value and other
        return value

    def compared() -> Any:
        value = single()
        if rest[:1] in (["=="], ["!="]):
            operator, other = take(), single()
            return (str(value).lower() == str(other).lower()) is (operator == "==")
        return value

    def single() -> Any:
        token = take()
        if token == "!":
            return not single()
        if token == "(":
            value = either()
            take(")")
            return value
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if token in STATUS:
            take("(")
            take(")")
            return {"success": not failed, "failure": failed, "always": True, "cancelled": False}[token]
        value: Any = context
        for part in token.split("."):
            value = value.get(part, "") if isinstance(value, Mapping) else ""
        return value

    value = either()
    if rest:
        raise ValueError(f"not understood: {rest}")
    return value


def filled(text: str, context: Mapping[str, Any]) -> str:
    """A text with its `${{ }}` replaced."""
    return EMBEDDED.sub(lambda m: str(evaluate(m[1], context)), text)


def holds(condition: str | None, context: Mapping[str, Any], failed: bool) -> bool:
    """Whether a step with this `if:` is run: none, or one without a status function, wants that no step has failed."""
    if condition is None:
        return not failed
    bare = EMBEDDED.sub(lambda m: m[1], condition)
    says_status = any(token in STATUS for token in tokens(bare))
    return bool(evaluate(bare, context, failed)) and (says_status or not failed)
