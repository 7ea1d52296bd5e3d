"""What the command line names -> what one step runs: a function of a file, a transformers config, a definition."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from profiler.program.frames import line_of
from profiler.program.model import ProgramError
from profiler.program.record import Workload
from profiler.program.request import Request
from profiler.region.language import trees

RETURNS = "(module, inputs) or (module, args, kwargs)"
MOST_BYTES = 4 * 1024 * 1024
"""Of a config or a definition."""
DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "bfloat16": torch.bfloat16,
    "float16": torch.float16, "float32": torch.float32, "float64": torch.float64, "int64": torch.int64,
    "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
    "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2,
    "float8_e8m0fnu": torch.float8_e8m0fnu, "float4_e2m1fn_x2": torch.float4_e2m1fn_x2,
}  # fmt: skip


def maker(request: Request) -> Callable[[], Workload]:
    """What builds the workload. Runs no more of the user's program than it takes to find it. Raises ProgramError."""
    if request.source.startswith("hf:"):
        return lambda: _of_config(request)
    if request.source.startswith("def:"):
        return lambda: _of_definition(request)
    path, _, function = request.source.rpartition(":")
    return lambda: _of_function(Path(path), function)


def _of_function(path: Path, function: str) -> Workload:
    module = _imported(path)
    make = getattr(module, function, None)
    if not callable(make):
        names = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        known = f" It has {', '.join(names[:10])}." if names else ""
        raise ProgramError(f"{path}: no function {function}.{known}")
    return _as_workload(make(), f"{path}:{function}")


def _imported(path: Path) -> ModuleType:
    """A file as a module, with its folder to import from, and the current one behind all else.

    Raises ProgramError, with the line that failed.
    """
    if not path.is_file():
        raise ProgramError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    sys.path.append(os.getcwd())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as fault:
        raise ProgramError(f"{path}:{fault.lineno}: {fault.msg}") from None
    except ImportError as fault:
        remedy = f"Install {fault.name} where tritonworthy is installed." if fault.name else ""
        raise ProgramError(f"{line_of(fault) or path}: {fault}", remedy) from None
    except Exception as fault:
        raise ProgramError(f"{line_of(fault) or path}: {type(fault).__name__}: {fault}") from None
    return module


def _as_workload(made: object, name: str) -> Workload:
    """What the function returned, checked. Raises ProgramError."""
    if not isinstance(made, tuple | list) or not 2 <= len(made) <= 3 or not callable(made[0]):
        raise ProgramError(f"{name} returned {_kind(made)}", f"Return {RETURNS}; inputs: a tensor or a tuple of them.")
    function, inputs = made[0], made[1]
    kwargs: object = made[2] if len(made) == 3 else {}
    if len(made) == 2 and isinstance(inputs, Mapping):
        inputs, kwargs = (), inputs
    args = inputs if isinstance(inputs, tuple | list) else (inputs,)
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise ProgramError(f"{name} returned {_kind(kwargs)} as kwargs", f"Return {RETURNS}.")
    return Workload(function, tuple(args), dict(kwargs))


def _kind(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(type(v).__name__ for v in value[:5]) or 'nothing'}"
    return f"a {type(value).__name__}"


def _read_json(path: str) -> dict[str, Any]:
    """A JSON object from a file. Raises ProgramError."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise ProgramError(f"{path}: larger than {MOST_BYTES // 1024**2} MiB")
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as fault:
        raise ProgramError(f"{path}: {fault.strerror}") from None
    except (ValueError, RecursionError) as fault:
        raise ProgramError(f"{path}: no JSON ({fault})") from None
    if not isinstance(value, dict):
        raise ProgramError(f"{path}: no JSON object")
    return value


def _of_config(request: Request) -> Workload:
    """A model of transformers by its config: nothing is downloaded, and no code that a config names is run."""
    path = request.source.removeprefix("hf:")
    path = os.path.join(path, "config.json") if os.path.isdir(path) else path
    values = without(_read_json(path))
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError:
        raise ProgramError("transformers is not installed", "pip install transformers") from None
    kind = values.pop("model_type", None)
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise ProgramError(
            f"{path}: model_type {kind!r} is unknown to transformers {transformers.__version__}",
            "Write a function that makes the model and its inputs: model.py:make_model.",
        )
    try:
        config = transformers.AutoConfig.for_model(kind, **values)
        if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
        named = values.get("dtype") or values.get("torch_dtype")
        dtype = DTYPES.get(request.dtype or str(named), torch.bfloat16)
        model = _model_of(transformers, config, dtype)
    except (TypeError, ValueError, KeyError, AttributeError) as fault:
        raise ProgramError(f"{path}: {type(fault).__name__}: {fault}") from fault
    return Workload(model, (), _inputs_of(model, config, request, dtype))


NOT_TAKEN = frozenset({"auto_map", "quantization_config", *(
    f"{prefix}{part}_implementation{suffix}"
    for part in ("attn", "experts") for prefix in ("", "_") for suffix in ("", "_internal")
)})  # fmt: skip
"""Of a config, at any depth: what names code, also of a hub's repository, and what the weights alone are."""


def without(values: dict[str, Any]) -> dict[str, Any]:
    """A config without what is not taken of it."""
    return {
        key: without(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in NOT_TAKEN
    }


def _model_of(transformers: Any, config: Any, dtype: torch.dtype) -> torch.nn.Module:
    """The class that the config names first, else the task's that transformers knows for its type."""
    for name in getattr(config, "architectures", None) or ():
        made = getattr(transformers, str(name), None)
        if isinstance(made, type) and issubclass(made, transformers.PreTrainedModel):
            chosen: Any = made
            return chosen._from_config(config, dtype=dtype)  # type: ignore[no-any-return]
    for auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForImageClassification", "AutoModel"):
        if type(config) in getattr(transformers, auto)._model_mapping:
            return getattr(transformers, auto).from_config(config, dtype=dtype)  # type: ignore[no-any-return]
    raise ValueError(f"no model for {type(config).__name__}")


def _inputs_of(model: Any, config: Any, request: Request, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """By the model's main input: tokens, images or sound; with labels where it trains and takes them."""
    takes = inspect.signature(model.forward).parameters
    batch, sequence = request.batch, request.sequence
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None) or 2
    tokens = torch.randint(0, vocabulary, (batch, sequence))
    main = getattr(model, "main_input_name", "input_ids")
    inputs: dict[str, torch.Tensor] = {}
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        inputs[main] = torch.randn(batch, getattr(config, "num_channels", 3) or 3, height, width, dtype=dtype)
        labels = torch.randint(0, 2, (batch,))
    elif main == "input_features":
        bins, frames = getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500)
        inputs[main], labels = torch.randn(batch, bins, frames, dtype=dtype), tokens
    elif main == "input_values":
        inputs[main], labels = torch.randn(batch, 16_000, dtype=dtype), tokens
    else:
        inputs[main] = tokens
        classifies = hasattr(model, "classifier") or hasattr(model, "score")
        labels = torch.randint(0, 2, (batch,)) if classifies else tokens
    if "pixel_values" in takes and "input_ids" in takes and main != "input_ids":
        inputs["input_ids"] = tokens
    if getattr(config, "is_encoder_decoder", False) and not (request.training and "labels" in takes):
        inputs["decoder_input_ids"] = tokens
    if request.training and "labels" in takes:
        inputs["labels"] = labels
    if "use_cache" in takes:
        return {**inputs, "use_cache": False}  # type: ignore[dict-item]
    return inputs


def _of_definition(request: Request) -> Workload:
    """A SOL-ExecBench or FlashInfer-Bench definition: axes, inputs and the reference's Python, of which `run` is it."""
    source = request.source.removeprefix("def:")
    values = _read_json(source)
    axes, inputs, reference = values.get("axes"), values.get("inputs"), values.get("reference")
    if not isinstance(axes, dict) or not isinstance(inputs, dict) or not isinstance(reference, str):
        raise ProgramError(f"{source}: no definition: axes, inputs and reference are asked for")
    sizes: dict[str, int] = {}
    for name, axis in axes.items():
        value = (request.sizes or {}).get(name, axis.get("value") if isinstance(axis, dict) else None)
        if isinstance(value, int):
            sizes[name] = value
    asked = [n for n, axis in axes.items() if n not in sizes and not _computed(axis)]
    if asked:
        raise ProgramError(f"{source}: no size for {', '.join(asked)}", f"Say --size {asked[0]}=1024 for each.")
    for name, axis in axes.items():
        if name not in sizes:
            sizes[name] = _value(str(axis.get("expression", "")), sizes, source)
    run = _defined(reference, source)
    return Workload(run, (), {name: _made(name, spec, sizes, source) for name, spec in inputs.items()})


def _computed(axis: object) -> bool:
    return isinstance(axis, dict) and isinstance(axis.get("expression"), str)


def _value(expression: str, sizes: Mapping[str, int], source: str) -> int:
    """A size of sizes: whole numbers, names, + - * / // and brackets, nothing else. Raises ProgramError."""
    operations: dict[type, Callable[[int, int], int]] = {
        ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
        ast.FloorDiv: lambda a, b: a // b, ast.Div: lambda a, b: a // b,
    }  # fmt: skip

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in operations:
            return operations[type(node.op)](value(node.left), value(node.right))
        raise ValueError(ast.dump(node)[:80])

    try:
        return value(trees.expression(expression[:1000]))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise ProgramError(f"{source}: the size {expression[:80]!r} cannot be computed") from None


def _defined(reference: str, source: str) -> Callable[..., Any]:
    """The reference's `run`. Its lines are told as the definition's."""
    name = f"{source}#reference.py"
    linecache.cache[name] = (len(reference), None, reference.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "reference"}
    try:
        exec(compile(reference, name, "exec"), scope)  # noqa: S102 (the user's own program, in a process of its own)
    except Exception as fault:
        raise ProgramError(f"{line_of(fault) or source}: {type(fault).__name__}: {fault}") from None
    run = scope.get("run")
    if not callable(run):
        raise ProgramError(f"{source}: the reference defines no run")
    return run  # type: ignore[no-any-return]


def _made(name: str, spec: object, sizes: Mapping[str, int], source: str) -> object:
    """One input: a tensor of its shape, or a number where it has none."""
    if not isinstance(spec, dict):
        raise ProgramError(f"{source}: the input {name} has no shape and no type")
    dtype = DTYPES.get(str(spec.get("dtype")))
    shape = spec.get("shape")
    if dtype is None:
        raise ProgramError(f"{source}: the input {name} is of an unknown type, {spec.get('dtype')!r}")
    if shape is None:
        return 1.0 if dtype.is_floating_point else True if dtype == torch.bool else 1
    named = [size if isinstance(size, int) else sizes.get(str(size)) for size in shape]
    whole = [size if size is not None else _value(str(shape[i]), sizes, source) for i, size in enumerate(named)]
    return torch.empty(whole, dtype=dtype)
