"""A module and its inputs -> the operations of one step. Runs the user's Python: in its own process (`process`)."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from profiler.program.cuda import cuda_of
from profiler.program.events import calls_of, read_spans
from profiler.program.frames import line_of
from profiler.program.model import Call, Gap, Program, ProgramError
from profiler.program.recorder import Recorder
from profiler.program.stand_ins import chosen_on, gpu_choices
from profiler.program.to_meta import ToMeta
from profiler.region.graph.cost import operation_cost


@dataclass(frozen=True, slots=True)
class Workload:
    """What one step runs: function(*args, **kwargs). parameters of a module among them learn where it trains."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def record(
    name: str,
    make: Callable[[], Workload],
    *,
    training: bool = False,
    dtype: torch.dtype | None = None,
    capability: int = 9,
) -> Program:
    """make: builds the workload; runs where every tensor is without memory. dtype: of weights and floating inputs.

    capability: major compute capability of the GPU whose choices are taken. Raises ProgramError.
    """
    recorder = Recorder(chosen_on(capability))
    with _without_memory(capability, recorder) as devices:
        try:
            workload = make()
        except ProgramError:
            raise
        except Exception as fault:
            raise ProgramError(f"{line_of(fault) or name}: {said(fault)}") from fault
        devices.building = False
        workload = _moved(workload, dtype)
        module = workload.function if isinstance(workload.function, torch.nn.Module) else None
        if module is not None:
            module.train(training)
        recorder.gaps.clear()
        recorder.calls.clear()
        calls, gaps = _profiled(workload, recorder, training)
    every = (*recorder.gaps, *gaps)
    if not any(call.operation and operation_cost(call.operation).launches for call in calls):
        if not every:
            raise ProgramError(f"{name}: it runs nothing on the device", "Return a module that computes.")
        told = "" if every[-1].ends else "it runs nothing on the device that is counted; "
        raise ProgramError(f"{every[-1].where or name}: {told}{every[-1].what}")
    weights = [] if module is None else [*module.parameters(), *module.buffers()]
    return Program(
        name=name,
        calls=calls,
        frames=tuple(recorder.stacks.names),
        stacks=tuple(recorder.stacks.stacks),
        gaps=every,
        training=training,
        parameters=0 if module is None else sum(p.numel() for p in module.parameters()),
        weights_bytes=sum(w.numel() * w.element_size() for w in weights),
        versions=tuple(
            (package, str(sys.modules[package].__version__))
            for package in ("torch", "torchvision", "transformers")
            if package in sys.modules
        ),
    )


def counted_flops(
    make: Callable[[], Workload], *, training: bool, dtype: torch.dtype | None, capability: int = 9
) -> int:
    """torch's own count of the matrix units' work in the same step; 0 where the step does not run to its end."""
    recorder = Recorder(chosen_on(capability))
    with _without_memory(capability, recorder) as devices:
        made = make()
        devices.building = False
        workload = _moved(made, dtype)
        if isinstance(workload.function, torch.nn.Module):
            workload.function.train(training)
        with FlopCounterMode(display=False) as counter:
            try:
                with recorder:
                    _step(workload, training)
            except Exception:
                return 0
    return int(counter.get_total_flops())


def _profiled(workload: Workload, recorder: Recorder, training: bool) -> tuple[tuple[Call, ...], list[Gap]]:
    """One step, as far as it comes."""
    gaps: list[Gap] = []
    with TemporaryDirectory(prefix="tritonworthy-") as folder:
        file = Path(folder) / "events.json"
        with _Quiet(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
            try:
                with recorder:
                    _step(workload, training)
            except ProgramError:
                raise
            except Exception as fault:
                gaps.append(Gap(said(fault), line_of(fault), ends=True))
            finally:
                torch._C._autograd._enable_record_function(True)
        recording.export_chrome_trace(str(file))
        del recording  # with its own events, which are larger than ours
        gc.collect()
        spans = read_spans(file)
    return calls_of(spans, recorder.calls), gaps


def _step(workload: Workload, training: bool) -> None:
    """Forward, and backward from what the function returns: its loss, where it has one, else all its floats."""
    if not training:
        with torch.no_grad():
            workload.function(*workload.args, **workload.kwargs)
        return
    result = workload.function(*workload.args, **workload.kwargs)
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    roots = [loss] if isinstance(loss, torch.Tensor) else [*_floats(result)]
    roots = [r for r in roots if r.requires_grad]
    if not roots:
        raise ProgramError("nothing that it returns has a gradient", "Return what is trained on, or leave --training.")
    with torch._C._DisableTorchDispatch():
        upstream = [torch.empty_like(root) for root in roots]
    torch.autograd.backward(roots, upstream)


def _floats(value: Any) -> Iterator[torch.Tensor]:
    """The floating tensors of what a module returned, dataclasses and mappings included."""
    leaves = tree_leaves(dict(value) if isinstance(value, Mapping) else value)
    yield from (leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())


def _moved(workload: Workload, dtype: torch.dtype | None) -> Workload:
    """All on the meta device, in the type asked for."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return value.to(device="meta", dtype=dtype) if dtype is not None else value.to(device="meta")
        if not isinstance(value, torch.Tensor):
            return value
        floating = value.is_floating_point() and dtype is not None
        made = value.detach().to(device="meta", dtype=dtype if floating else value.dtype)
        return made.requires_grad_(value.requires_grad)

    return Workload(
        moved(workload.function), tree_map(moved, list(workload.args)), tree_map(moved, dict(workload.kwargs))
    )


@contextmanager
def _without_memory(capability: int, recorder: Recorder) -> Iterator[ToMeta]:
    """Where what is made has no memory, and a GPU seems to be there."""
    with ExitStack() as stack:
        for name, stand_in in cuda_of(capability, recorder).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        stack.enter_context(gpu_choices(recorder.chosen))
        stack.enter_context(_without_triton(recorder))
        stack.enter_context(torch.device("meta"))
        devices = ToMeta(recorder)
        stack.enter_context(devices.autocast.kept())
        yield stack.enter_context(devices)


@contextmanager
def _without_triton(recorder: Recorder) -> Iterator[None]:
    """A Triton kernel of the program's own is noted and not launched."""
    try:
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return

    def noted(kernel: Any, *_: object, **__: object) -> None:
        recorder.gap(f"the Triton kernel {kernel.__name__} is not counted")

    with mock.patch.object(JITFunction, "run", noted):
        yield


def said(fault: BaseException) -> str:
    """An exception in one line."""
    first = (str(fault).strip().splitlines() or [""])[0]
    return f"{type(fault).__name__}: {first}" if first else type(fault).__name__


class _Quiet:
    """Silences what the profiler logs of a run without a GPU."""

    def __enter__(self) -> None:
        logging.disable(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        logging.disable(logging.NOTSET)
