"""Which Python functions and modules are open at a call, as torch.profiler names them in a trace with stacks."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import Counter
from types import CodeType, FrameType

import torch

TORCH = os.path.dirname(torch.__file__) + os.sep
OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
ROOTS = tuple(sorted({sysconfig.get_paths()[key] + os.sep for key in ("purelib", "platlib")}))
MODULE_CALL: CodeType = torch.nn.Module._call_impl.__code__


class Stacks:
    """The stacks of a run, each function's every call told from its others.

    The user's frames are held, so that none that ended has the identity of one that began after it. Others are not:
    of a gradient that somebody holds autograd makes a copy.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stacks: dict[tuple[int, ...], int] = {(): 0}
        self._open: dict[int, tuple[FrameType, int]] = {}
        self._users: dict[CodeType, bool] = {}
        self._modules: dict[int, str] = {}
        self._of_class: Counter[str] = Counter()

    def here(self) -> int:
        """The number of the stack of whoever calls, without torch's functions and this package's."""
        stack = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is MODULE_CALL or self._is_users(frame.f_code):
                known = self._open.get(id(frame))
                if known is None or known[0] is not frame:
                    known = self._open[id(frame)] = (frame, self._entered(frame))
                stack.append(known[1])
            frame = frame.f_back
        key = tuple(reversed(stack))
        return self.stacks.setdefault(key, len(self.stacks))

    def _is_users(self, code: CodeType) -> bool:
        known = self._users.get(code)
        if known is None:
            known = self._users[code] = is_users(code.co_filename)
        return known

    def _entered(self, frame: FrameType) -> int:
        """The number of the name of a frame that is seen for the first time."""
        if frame.f_code is MODULE_CALL:
            name = self._module(frame.f_locals["self"])
        else:
            code = frame.f_code
            name = f"{short(code.co_filename)}({code.co_firstlineno}): {code.co_name}"
        self.names.append(name)
        return len(self.names) - 1

    def _module(self, module: torch.nn.Module) -> str:
        """`nn.Module: Linear_3`: numbered within its class in the order of first calls."""
        if id(module) not in self._modules:
            kind = type(module).__name__
            self._modules[id(module)] = f"nn.Module: {kind}_{self._of_class[kind]}"
            self._of_class[kind] += 1
        return self._modules[id(module)]


def is_users(file: str) -> bool:
    """Whether a file is neither torch's, Python's own nor this package's. Installed libraries count as the user's."""
    return not file.startswith((TORCH, OURS, "<")) and not (file.startswith(STANDARD) and not file.startswith(ROOTS))


def short(file: str) -> str:
    """A path below where packages are installed, or below the working directory, without it."""
    for root in (*ROOTS, os.getcwd() + os.sep):
        if file.startswith(root):
            return file[len(root) :]
    return file


def user_line() -> str:
    """`model.py:12` of the innermost function of the user's that is open; "" for none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


def line_of(fault: BaseException) -> str:
    """The same of where an exception was raised or passed through last."""
    where = ""
    step = fault.__traceback__
    while step is not None:
        if is_users(step.tb_frame.f_code.co_filename):
            where = f"{short(step.tb_frame.f_code.co_filename)}:{step.tb_lineno}"
        step = step.tb_next
    return where
