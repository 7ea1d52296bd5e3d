"""Trace: one torch.profiler file as columns. Torch-free; numpy arrays inside, plain tuples at the edges.

Times are microseconds relative to `origin_us` (the first event), so that float64 keeps nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiler.trace.errors import Damage

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE = -1
"""The index that points nowhere: an op without a parent, a kernel without a launch or an op."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What record_shapes wrote of an op. One Detail is shared by every op that has the same one.

    dims: one entry per argument; a tensor's sizes, () for a scalar or None, a tuple of tuples for a TensorList.
    types: the spelling of the trace ("c10::BFloat16", "float", "Scalar", "ScalarList", "TensorList", "").
    strides: as dims; () where the trace has none.
    concrete: the values of scalar arguments as text ("2", "[-1]", "True"), "" where the trace lost them.
    """

    dims: tuple[tuple[object, ...], ...]
    types: tuple[str, ...]
    strides: tuple[tuple[object, ...], ...] = ()
    concrete: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ops:
    """cpu_op events, ordered by (thread, start, -end)."""

    name: Ints  # index into Trace.names
    start_us: Floats
    end_us: Floats
    thread: Ints  # index into Trace.threads
    parent: Ints  # index of the innermost op that encloses this one on its thread; NONE = outermost
    detail: Ints  # index into Trace.details; NONE = shapes not recorded
    external_id: Longs  # "External id"; NONE = absent. A check, never the link
    record_id: Longs  # "Record function id", joins an execution trace; NONE = absent
    sequence: Longs  # "Sequence number", pairs forward with backward; NONE = absent
    module: Ints  # index into Trace.modules (with_stack / with_modules); NONE = unknown


@dataclass(frozen=True, slots=True)
class Kernels:
    """GPU kernels, ordered by start."""

    name: Ints  # index into Trace.names
    start_us: Floats
    duration_us: Floats
    stream: Longs
    device: Ints
    correlation: Longs  # NONE = absent
    launch_us: Floats  # start of the runtime event that launched it; NaN = not in the window
    op: Ints  # innermost op that encloses the launch on its thread; NONE = no link
    launched: npt.NDArray[np.bool_]  # a runtime event with this correlation is in the window
    graph: npt.NDArray[np.bool_]  # launched by one cuda/hipGraphLaunch
    launch_end_us: Floats | None = None  # end of that runtime event; NaN where launch_us is


@dataclass(frozen=True, slots=True)
class Memory:
    """Copies and sets on the GPU (memcpy, memset), ordered by start. Same columns as kernels need."""

    name: Ints
    start_us: Floats
    duration_us: Floats
    stream: Longs
    op: Ints
    launch_us: Floats | None = None  # start of the runtime event that asked for it; NaN = not in the window


@dataclass(frozen=True, slots=True)
class Annotations:
    """user_annotation events (record_function, ProfilerStep#N), ordered by start."""

    name: Ints
    start_us: Floats
    end_us: Floats
    thread: Ints


@dataclass(frozen=True, slots=True)
class Note:
    """What the trace lacks or what was done about it, and how to record it better.

    code: stable, kebab-case ("no-shapes", "no-kernels", "graph-launches", "truncated", "launched-before-window", ...).
    level: "info", "warning" or "error".
    """

    code: str
    level: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: host window [start, end), and the kernels launched in it (by launch time, else by their own start)."""

    name: str
    start_us: float
    end_us: float
    kernels: Longs  # indices into Kernels
    ops: Longs  # indices of outermost ops that start inside
    memory: Longs  # indices into Memory

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a trace was predicted from that nobody recorded. known_share: of its kernels' time, what the device's atlas
    has points for. gaps: what the record of the program assumes or says nothing of, in words with their line."""

    name: str
    device: str
    training: bool
    parameters: int
    weights_bytes: int
    known_share: float
    gaps: tuple[tuple[str, str, bool], ...]  # what, where, and whether nothing behind it was recorded


@dataclass(frozen=True, slots=True)
class Trace:
    """One torch.profiler file, as read."""

    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]  # (pid, tid) as text
    modules: tuple[str, ...]  # module paths, "" never among them
    details: tuple[Detail, ...]
    ops: Ops
    kernels: Kernels
    memory: Memory
    annotations: Annotations
    steps: tuple[Step, ...]  # at least one where there is any op or kernel
    profiler_steps: int  # distinct ProfilerStep names; may be 0
    step_source: str  # "profiler", "annotation", "repetition" or "window"
    events: int  # all events in the file
    dropped: int  # events that could not be decoded or have a time that cannot be, counted
    device: str | None  # GPU name as the trace has it
    origin_us: float
    has_shapes: bool
    has_stacks: bool
    truncated: bool
    notes: tuple[Note, ...]
    rank: int | None = None  # of a job of several processes, as the trace has it
    syncs: Annotations | None = None  # runtime calls in which the host waits for the GPU (columns.HOST_WAITS)
    # Ops that are one launch by torch.compile's runner of Triton kernels: name -> file of the source ("" where absent).
    triton_files: Mapping[str, str] = field(default_factory=dict)
    capability: tuple[int, int] | None = None  # of an NVIDIA GPU: (6, 0) is compute capability 6.0
    damage: Damage = Damage.NONE  # of the gzip file, which was read to its end all the same
    has_call_stacks: bool = False  # operations have a "Call stack": the lines of the calls, where has_stacks has frames
    device_told_by: str = ""  # what the device was known by, where not by its name
    with_modules: bool = False  # recorded with with_modules=True, as its header says: no module need be known by it
    predicted: Predicted | None = None  # from a program; None for what a profiler recorded

    @property
    def kernel_time_us(self) -> float:
        """Sum of kernel durations."""
        return float(self.kernels.duration_us.sum())

    @property
    def linked_share(self) -> float | None:
        """Share of kernel time whose kernels have an op; None without kernel time."""
        total = self.kernel_time_us
        if total == 0.0:
            return None
        return float(self.kernels.duration_us[self.kernels.op != NONE].sum()) / total
