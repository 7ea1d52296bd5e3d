"""A function of the user's own file as a candidate: loaded in the candidate's process, called with the region's inputs.

It runs with the rights of whoever started the command; no server does this.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import torch

from kernels.baselines import Runner, with_gradients
from kernels.measure.candidate.task import WrongOutputError
from kernels.measure.messages import UserKernel
from profiler.region.language.text import to_text
from profiler.region.model import Region

Build = Callable[[str, Region, Mapping[str, int] | None, str], Runner]

NO_GRADIENT = (
    "nothing that it returned carries a gradient: the region is trained (requires_grad), so put the kernel into a"
    " torch.autograd.Function with a backward"
)
PLACE = "raised at "


def builder(kernel: UserKernel) -> Build:
    """What `kernels.candidates.build` is for other candidates. The file is loaded at the first build, once."""
    loaded: list[Callable[..., object]] = []

    def build(name: str, region: Region, binding: Mapping[str, int] | None, device: str) -> Runner:
        try:
            if not loaded:
                loaded.append(_function(load(Path(kernel.path)), kernel))
            _check_signature(loaded[0], kernel, region)
        except Exception as fault:
            _add_place(fault, kernel)
            raise
        return with_gradients(_called(loaded[0], kernel, region), region.requires_grad)

    return build


def load(path: Path) -> ModuleType:
    """The file as a module: with its folder on the path, and as part of its package where it is in one.

    Its name is one that no other module has: a file may be called as a package is that is imported already.
    """
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    free = parts[0] not in sys.modules and parts[0] not in sys.stdlib_module_names
    root = parts[0] if free else f"users_{parts[0]}"
    place = folder / parts[0]
    name = root
    for part in parts[1:]:
        _execute(name, place / "__init__.py", [str(place)])
        name, place = f"{name}.{part}", place / part
    return _execute(name, path, None)


def _execute(name: str, path: Path, search: list[str] | None) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as `import` does: Triton and dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def _function(module: ModuleType, kernel: UserKernel) -> Callable[..., object]:
    function = getattr(module, kernel.function, None)
    file = Path(kernel.path).name
    if function is None:
        raise AttributeError(f"{file} has no {kernel.function}")
    if hasattr(function, "run") and hasattr(function, "arg_names"):
        raise TypeError(
            f"{kernel.function} of {file} is a Triton kernel: name the Python function that makes the outputs and"
            " launches it"
        )
    if not callable(function):
        raise TypeError(f"{kernel.function} of {file} is of type {type(function).__name__}, no function")
    return function  # type: ignore[no-any-return]


def _check_signature(function: Callable[..., object], kernel: UserKernel, region: Region) -> None:
    """Raises TypeError where it does not take as many arguments as the region has inputs."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of an extension does not tell
        return
    try:
        signature.bind(*region.inputs)
    except TypeError as why:
        raise TypeError(
            f"{kernel.function}{signature} cannot be called with the region's inputs ({why}): it gets"
            f" {len(region.inputs)} tensors, in the order of the region's text: {_inputs(region)}"
        ) from None


def _inputs(region: Region) -> str:
    """`x: bf16[8, 64], w: bf16[64]`."""
    lines = to_text(region).splitlines()[len(region.symbols) :]
    return ", ".join(lines[: len(region.inputs)])


def _called(function: Callable[..., object], kernel: UserKernel, region: Region) -> Callable[..., object]:
    def run(*inputs: torch.Tensor) -> tuple[object, ...]:
        try:
            returned = function(*inputs)
        except Exception as fault:
            _add_place(fault, kernel)
            raise
        outputs = as_outputs(returned, len(region.outputs))
        differentiable = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
        if region.requires_grad and not differentiable:
            raise WrongOutputError(NO_GRADIENT)
        return outputs

    return run


def as_outputs(returned: object, count: int) -> tuple[object, ...]:
    """What a function returned as the region's outputs. Raises WrongOutputError."""
    outputs = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if len(outputs) != count or not all(isinstance(o, torch.Tensor) for o in outputs):
        what = ", ".join(type(o).__name__ for o in outputs[:8])
        wanted = "a tensor" if count == 1 else f"a tuple of {count} tensors, in the order of the region's return line"
        got = f"({what})" if isinstance(returned, tuple | list) else what
        raise WrongOutputError(f"it returned {got}, not {wanted}")
    return outputs


def _add_place(fault: Exception, kernel: UserKernel) -> None:
    """Where in the user's file it came from, for the message."""
    lines = [f.lineno for f in traceback.extract_tb(fault.__traceback__) if f.filename == kernel.path]
    line = fault.lineno if isinstance(fault, SyntaxError) else lines[-1] if lines else None
    if line and not place_of(fault):
        fault.add_note(f"{PLACE}{Path(kernel.path).name}:{line}")


def place_of(fault: BaseException) -> str:
    """` (raised at my_kernels.py:12)` where the user's file is known to have raised it, else ""."""
    notes = [note for note in getattr(fault, "__notes__", ()) if note.startswith(PLACE)]
    return f" ({notes[-1]})" if notes else ""
