"""A Triton kernel as Inductor writes it: its module's text read, its configurations found, compiled for a target.

The text is Inductor's own output. It is imported, but only if it has the form that Inductor gives it: imports from
torch and triton, and functions that are compiled by Triton and never run by Python. That catches a text that has
changed its form or was damaged; it is no sandbox, and no text of a user belongs here.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import tempfile
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import unwrap
from pathlib import Path
from typing import Any

from profiler.oracle.compiler.heuristics_recorder import Recorded
from profiler.oracle.compiler.machine import Machine
from profiler.oracle.compiler.machine_code import CompileError, compile_for
from profiler.region.language import trees

MAX_SOURCE = 1_000_000  # characters; the longest kernels that Inductor writes have some ten thousands
IMPORTS = ("torch", "triton", "math")
CALLS = frozenset({"DeviceProperties", "set", "frozenset", "OrderedSet", "dict", "list", "tuple"})
NAMES = frozenset({"ReductionHint", "TileHint", "AutotuneHint", "torch", "tl", "__file__"}) | CALLS
VALUES = (
    ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.UnaryOp, ast.USub, ast.Call, ast.keyword, ast.Load,
)  # fmt: skip
DRIVER = "triton_helpers.set_driver_to_gpu()"
HEURISTICS = "triton_heuristics"


class KernelTextError(ValueError):
    """The text is not a kernel's module as Inductor writes it; the message says where."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One of the configurations that Inductor would try, in its order. constants: tl.constexpr arguments."""

    constants: Mapping[str, Any]
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A loaded kernel. signature, constants, attributes, options: as Inductor would hand them to triton.compile."""

    name: str
    function: Any
    heuristic: str
    arch: str
    configurations: tuple[Configuration, ...]
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    attributes: Mapping[tuple[int, ...], list[list[Any]]]
    options: Mapping[str, Any]


def compile_inductor_kernel(source: str, name: str, arch: str | None = None, config: int = 0) -> Machine:
    """Compile one configuration of a kernel that Inductor wrote.

    source: the text between the quotes of `async_compile.triton('name', ...)`; arch: "sm_90", None for the one that
    the source was written for; config: which configuration, 0 the one that Inductor tries first. Which of several wins
    is decided by timing on the GPU. Raises KernelTextError for a text of another form, CompileError where the compiler
    refuses or the target is unknown, IndexError for a configuration that there is not.
    """
    with load_kernel(source, name) as kernel:
        return _compile(kernel, source, arch or kernel.arch, config)


def _compile(kernel: GeneratedKernel, source: str, arch: str, config: int) -> Machine:
    chosen = kernel.configurations[config]
    arguments = set(kernel.function.arg_names)
    constants = {**kernel.constants, **{k: v for k, v in chosen.constants.items() if k in arguments}}
    for name in ("num_warps", "num_stages"):
        if name in arguments and name not in constants:
            constants[name] = getattr(chosen, name)
    further = {k: v for k, v in chosen.constants.items() if k not in arguments}  # AMD's waves_per_eu and the like
    machine = compile_for(
        kernel.function, kernel.signature, constants, arch, chosen.num_warps, chosen.num_stages,
        attributes=kernel.attributes, options={**kernel.options, **further},
    )  # fmt: skip
    return replace(machine, config=config, configs=len(kernel.configurations), source=source)


@contextmanager
def load_kernel(source: str, name: str) -> Iterator[GeneratedKernel]:
    """The kernel of a module's text, for as long as the block lasts: Triton reads its source from a private file."""
    text = _without_device(source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(text, encoding="utf-8")
        try:
            spec = importlib.util.spec_from_file_location("kernel", path)
            if spec is None or spec.loader is None:
                raise KernelTextError("the kernel's module cannot be loaded")
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except (ImportError, AttributeError, NameError, TypeError, ValueError) as fault:
                raise KernelTextError(f"the kernel's module cannot be loaded: {fault}") from fault
            recorded = getattr(module, name, None)
            if not isinstance(recorded, Recorded):
                raise KernelTextError(f"the text has no kernel {name}")
            yield _kernel(name, recorded)
        finally:
            linecache.cache.pop(str(path), None)


def _kernel(name: str, recorded: Recorded) -> GeneratedKernel:
    meta, inductor = recorded.named.get("triton_meta"), recorded.named.get("inductor_meta") or {}
    if not isinstance(meta, dict) or "signature" not in meta or "device" not in meta:
        raise KernelTextError(f"{name} declares no signature")
    device = meta["device"]
    configurations = _configurations(recorded)  # before the meta data is read: a heuristic may add to it
    attributes = (meta.get("configs") or [{}])[0]
    options: dict[str, Any] = {  # as torch._inductor's CachingAutotuner._create_compile_options
        "debug": inductor.get("assert_indirect_indexing", True) and not inductor.get("is_hip", False),
        "sanitize_overflow": False,
    }
    for key in ("enable_fp_fusion", "launch_cooperative_grid", "launch_pdl"):
        if key in meta:
            options[key] = meta[key]
    if meta.get("disable_ftz"):
        options["enable_reflect_ftz"] = False
    arch = str(device.cc) if device.type == "hip" else f"sm_{device.cc}"
    constants = dict(meta.get("constants") or {})
    return GeneratedKernel(
        name, recorded.function, recorded.heuristic, arch, configurations,
        meta["signature"], constants, attributes, options,
    )  # fmt: skip


def _configurations(recorded: Recorded) -> tuple[Configuration, ...]:
    """What Inductor's own heuristic would try. It runs with a `cached_autotune` of ours, which asks for no device."""
    from torch._inductor.runtime import triton_heuristics

    heuristic = unwrap(getattr(triton_heuristics, recorded.heuristic, None) or _unknown)
    candidates: list[Any] = []

    def keep(size_hints: Any = None, configs: Any = (), *_: object, **settings: Any) -> None:
        kind = getattr(settings.get("heuristic_type"), "name", "")
        enforce = getattr(triton_heuristics, "_enforce_reduction_config_block_minimums", None)
        if size_hints is not None and kind in ("REDUCTION", "PERSISTENT_REDUCTION") and enforce is not None:
            configs = enforce(configs, size_hints, settings.get("inductor_meta") or {})
        candidates.extend(triton_heuristics.unique_configs(list(configs)))

    copy = types.FunctionType(
        heuristic.__code__, {**heuristic.__globals__, "cached_autotune": keep}, heuristic.__name__,
        heuristic.__defaults__, heuristic.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__ = heuristic.__kwdefaults__
    try:
        copy(*recorded.arguments, **recorded.named)
    except (AttributeError, TypeError, KeyError, AssertionError, NotImplementedError) as fault:
        raise KernelTextError(f"Inductor's {recorded.heuristic} does not take this kernel: {fault!r}") from fault
    if not candidates:
        raise KernelTextError(f"Inductor's {recorded.heuristic} gives no configuration")
    arguments = set(recorded.function.arg_names)
    # a kernel without XBLOCK handles one row a block, and the configuration still names it
    kwargs = [{k: v for k, v in c.kwargs.items() if k != "XBLOCK" or k in arguments} for c in candidates]
    return tuple(
        Configuration(chosen, int(c.num_warps), int(c.num_stages)) for c, chosen in zip(candidates, kwargs, strict=True)
    )


def _unknown(*_: object, **__: object) -> None:
    """A heuristic that this version of torch has not: it gives no configuration."""


def _without_device(source: str) -> str:
    """The text with its decorators recorded instead of applied and no driver asked for; line numbers stay.

    Raises KernelTextError where the text holds anything that Inductor would not write.
    """
    if len(source) > MAX_SOURCE:
        raise KernelTextError(f"the kernel's text has {len(source):,} characters, at most {MAX_SOURCE:,} are read")
    try:
        tree = trees.module(source)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as fault:
        raise KernelTextError(f"the kernel's text is not Python: {type(fault).__name__}") from fault
    lines = source.split("\n")
    recorded = False
    for node in tree.body:
        _check(node)
        if isinstance(node, ast.Expr) and ast.unparse(node) == DRIVER:
            lines[node.lineno - 1] = "pass"
        if isinstance(node, ast.ImportFrom) and (kept := [a for a in node.names if a.name != HEURISTICS]) != node.names:
            others = f"{ast.unparse(ast.ImportFrom(node.module, kept, node.level))}; " if kept else ""
            lines[node.lineno - 1] = f"{others}from profiler.oracle.compiler import heuristics_recorder as {HEURISTICS}"
            recorded = node.lineno == node.end_lineno
    if not recorded:
        raise KernelTextError(f"the kernel's text does not import {HEURISTICS} as Inductor writes it")
    return "\n".join(lines)


def _check(node: ast.stmt) -> None:
    """Refuse a top-level statement that could run anything when imported."""
    match node:
        case ast.Import(names=names) if all(a.name.split(".")[0] in IMPORTS for a in names):
            return
        case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in IMPORTS:
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Expr() if ast.unparse(node) == DRIVER:
            return
        case ast.FunctionDef(decorator_list=decorators, returns=None) if decorators and not node.args.kw_defaults:
            noted = [a.annotation for a in node.args.args if a.annotation is not None]  # run when the module is loaded
            if all(map(_declares, decorators)) and all(map(_plain, (*node.args.defaults, *noted))):
                return
    raise KernelTextError(f"line {node.lineno}: not what Inductor writes into a kernel's module")


def _declares(decorator: ast.expr) -> bool:
    """Whether a decorator is triton.jit, or a heuristic with values and known names for arguments."""
    if ast.unparse(decorator) == "triton.jit":
        return True
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith(f"{HEURISTICS}.")):
        return False
    return all(_plain(argument) for argument in (*decorator.args, *(k.value for k in decorator.keywords)))


def _plain(value: ast.expr) -> bool:
    """Whether an expression is made of values, names of torch's hints, and the few constructors that Inductor uses."""
    for part in ast.walk(value):
        match part:
            case ast.Call(func=ast.Name(id=name)) if name not in CALLS:
                return False
            case ast.Call(func=function) if not isinstance(function, ast.Name):
                return False
            case ast.Name(id=name) if name not in NAMES:
                return False
            case ast.Attribute(value=ast.Name(), attr=attribute) if not attribute.startswith("_"):
                pass
            case ast.Name():
                pass
            case _ if not isinstance(part, VALUES):
                return False
    return True


__all__ = [
    "CompileError",
    "Configuration",
    "GeneratedKernel",
    "KernelTextError",
    "compile_inductor_kernel",
    "load_kernel",
]
