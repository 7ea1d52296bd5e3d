"""A kernel as the user names it, `my_kernels.py:rms_norm`, and the verdict on it as the API's objects have it.

For the command line alone: the file runs with the rights of whoever started the command. Here it is only parsed.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.advice.evidence import decision_thresholds
from app.objects.kernel_verdict import KernelVerdict
from app.objects.record import ValidationBody
from app.thresholds import Thresholds
from kernels.measure.kernel_verdict import kernel_verdict
from kernels.measure.messages import UserKernel
from kernels.measure.model import to_json, validation_from_json
from profiler.region.language import trees

EXPECTED = (
    "The function takes the region's inputs as tensors, in the order of the region's text (a scalar is a tensor without"
    " dimensions), and returns its output, or a tuple of its outputs in the order of the return line. Where an input"
    " requires gradients, autograd must get through it: a torch.autograd.Function with a backward."
)


class UserKernelError(Exception):
    """No kernel of that name can be taken; the message says why."""


@dataclass(frozen=True, slots=True)
class NamedKernel:
    """kernel: what a measurement loads. given: as it was named; line: where the function begins, 1 where that is not
    told by the file's text."""

    kernel: UserKernel
    given: str
    line: int

    @property
    def source(self) -> str:
        """As stacks tell a place, from where the command runs: `src/my_kernels.py:12 rms_norm`."""
        relative = os.path.relpath(self.kernel.path)
        file = self.given.rpartition(":")[0] if relative.startswith("..") else relative
        return f"{file}:{self.line} {self.kernel.function}"


def named_kernel(given: str, folder: Path) -> NamedKernel:
    """The function that `file.py:function` names, the file relative to the folder. Raises UserKernelError."""
    file, _, function = given.rpartition(":")
    if not file or not function.isidentifier():
        raise UserKernelError(f"{given}: FILE.py:FUNCTION is wanted, such as my_kernels.py:rms_norm. {EXPECTED}")
    try:
        path = (folder / file).resolve()
        tree = trees.module(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserKernelError(f"{file}: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise UserKernelError(f"{file}{f':{line}' if line else ''}: not Python: {error}") from None
    names = dict(_names(tree))
    if function not in names and "*" not in names:
        near = difflib.get_close_matches(function, names, 1)
        hint = f"; did you mean {near[0]}?" if near else f". It has: {', '.join(list(names)[:20]) or 'nothing'}"
        raise UserKernelError(f"{file} has no {function}{hint}")
    return NamedKernel(UserKernel(str(path), function), given, names.get(function, 1))


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What the module's own statements bind, with the line; `*` for a star import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif not isinstance(node, ast.Lambda):
            yield from _names(node)


def verdict_of(validation: ValidationBody, thresholds: Thresholds) -> KernelVerdict | None:
    """The verdict on the user's kernel that a validation measured; None where it measured none."""
    measured = validation_from_json(dict(validation))
    verdict = kernel_verdict(measured, decision_thresholds(thresholds))
    if verdict is None:
        return None
    answer: KernelVerdict = to_json(verdict)
    return answer
