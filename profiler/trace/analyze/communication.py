"""Which kernels and operations move data between ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_KERNELS = (
    "nccldev", "ncclkernel", "rccl", "mscclkernel", "cross_device_reduce", "multimem_all_reduce", "nvshmem",
    "deep_ep::", "quick_all_reduce",
)  # fmt: skip
"""NCCL, RCCL and MSCCL name their kernels so; the others are all-reduces of vLLM, torch's symmetric memory, DeepEP."""

_OPS = ("nccl:", "gloo:", "mpi:", "ucc:", "c10d::", "_c10d_functional::", "record_param_comms")


def is_communication(kernel: str) -> bool:
    """Whether a kernel of this name moves data between ranks."""
    lowered = kernel.lower()
    return any(part in lowered for part in _KERNELS)


def is_communication_op(name: str) -> bool:
    """Whether an operation or annotation of this name does."""
    return name.startswith(_OPS)


def communication_kernels(names: Sequence[str], name: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """bool [kernels]: which of them move data between ranks. name: int [kernels], indices into names."""
    marked = np.array([is_communication(text) for text in names], np.bool_)
    return marked[name] if len(marked) else np.zeros(len(name), np.bool_)
