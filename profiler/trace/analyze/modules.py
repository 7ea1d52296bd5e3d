"""Module paths of ops, from the `nn.Module: Name_0` frames that with_stack records."""

from __future__ import annotations

import numpy as np

from profiler.trace.analyze.kernel_links import innermost, nesting
from profiler.trace.model import NONE, Floats, Ints
from profiler.trace.read.mmap_columns import pieces

_PREFIX = "nn.Module: "
_LONGEST = 1000
"""Characters of a path that are kept, counted from its end: hostile nesting would make them quadratic otherwise."""


def module_paths(
    frame_name: Ints,
    frame_thread: Ints,
    frame_start_us: Floats,
    frame_end_us: Floats,
    names: tuple[str, ...],
    op_thread: Ints,
    op_start_us: Floats,
) -> tuple[tuple[str, ...], Ints]:
    """(paths, index of each op's path or NONE): "Model_0/Block_2/RMSNorm_0" from the frames open when the op starts.

    A backward op runs outside its module's frame and has none.
    """
    order, parent = nesting(frame_thread, frame_start_us, frame_end_us)
    paths: dict[str, int] = {}
    frame_path: list[str] = []
    for name, outer in zip(frame_name[order].tolist(), parent.tolist(), strict=True):
        own = names[name].removeprefix(_PREFIX)
        frame_path.append(f"{frame_path[outer][-_LONGEST:]}/{own}" if outer != NONE else own)
    path_of = np.array([paths.setdefault(path, len(paths)) for path in frame_path], dtype=np.int32)
    frame = innermost(op_thread, op_start_us, frame_thread[order], frame_start_us[order], frame_end_us[order], parent)
    if len(path_of):
        for at in pieces(len(frame), frame):
            frame[at] = np.where(frame[at] != NONE, path_of[frame[at]], NONE)
    return tuple(paths), frame
