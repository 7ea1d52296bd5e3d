"""A GPU that is not there, as far as Inductor looks at one: its properties, its driver, its compute capability.

Everything here leans on private API of torch and triton. Each assumption has a test of its own in
tests/profiler/oracle/inductor/test_contract.py, so that a new version says which one moved. Patches whole modules: use
it in a process of its own, never in one that serves or measures.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch._dynamo import device_interface
from torch._inductor.runtime import hints
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget

from profiler.hardware import Device
from profiler.oracle.compiler.targets import TARGETS

DEVICE = "cuda:0"
"""With its index: `.to("cuda")` on a fake of a CPU build gives the meta device."""

GUARD_SLOTS = 21
"""Entries of c10's table of device guards (c10::DeviceType, torch 2.10 to 2.13)."""
CUDA_SLOT, META_SLOT = 1, 14
REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


class NotAskableError(Exception):
    """A device that cannot be imitated, with the reason."""


def capability(device: Device) -> tuple[int, int]:
    """Compute capability, (9, 0) for sm_90. Raises NotAskableError for other GPUs than NVIDIA's and older ones."""
    if not device.arch.startswith("sm_"):
        raise NotAskableError(f"torch.compile for {device.arch} is not imitated: NVIDIA GPUs only")
    if device.arch not in TARGETS:
        raise NotAskableError(f"Triton does not compile for {device.arch}")
    number = int(device.arch.removeprefix("sm_"))
    return number // 10, number % 10


def properties(device: Device) -> Any:
    """What torch.cuda.get_device_properties would say, as far as Inductor asks."""
    major, minor = capability(device)
    target = TARGETS[device.arch]
    return SimpleNamespace(
        name=device.name,
        major=major,
        minor=minor,
        type="cuda",
        index=0,
        cc=major * 10 + minor,
        multi_processor_count=device.processors,
        total_memory=int(device.memory_bytes),
        L2_cache_size=int(device.l2_bytes),
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=target.threads,
        regs_per_multiprocessor=target.registers,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=target.shared_block_bytes,
        shared_memory_per_multiprocessor=target.shared_bytes,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="0",
    )


class FakeDriver:
    """Triton's driver, for a target and nothing else: anything that would launch fails."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def is_active(self) -> bool:
        return True


@contextlib.contextmanager
def _no_device_guard() -> Iterator[None]:
    """`contiguous()` and the like switch devices in C++; without CUDA that must do nothing.

    CUDA builds of torch 2.10 and later bring a guard for that; in CPU builds the meta device's, which does nothing,
    is lent. Enter it before torch.cuda is patched.
    """
    if torch.cuda.is_available():
        yield
        return
    ensure_guard = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if torch.version.cuda and ensure_guard:
        ensure_guard()
        yield
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * GUARD_SLOTS).in_dll(library, REGISTRY)
    before, registry[CUDA_SLOT] = registry[CUDA_SLOT], registry[META_SLOT]
    try:
        yield
    finally:
        registry[CUDA_SLOT] = before


def _answers(device: Device) -> Mapping[str, Callable[..., Any]]:
    """Functions of torch.cuda, and what they say on the device."""
    gpu = properties(device)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "get_device_properties": lambda *_: gpu,
        "get_device_capability": lambda *_: (gpu.major, gpu.minor),
        "get_device_name": lambda *_: gpu.name,
        "is_bf16_supported": lambda *_, **__: gpu.major >= 8,
        "synchronize": lambda *_: None,
        "set_device": lambda *_: None,
        "_exchange_device": lambda *_: 0,
        "_maybe_exchange_device": lambda *_: 0,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
        "mem_get_info": lambda *_: (gpu.total_memory, gpu.total_memory),
    }


def _interface_answers(device: Device) -> Mapping[str, Callable[..., Any]]:
    """Functions that only torch._dynamo.device_interface has."""
    major, minor = capability(device)
    return {
        "get_compute_capability": lambda *_: major * 10 + minor,
        "exchange_device": lambda *_: 0,
        "maybe_exchange_device": lambda *_: 0,
        "is_triton_capable": lambda *_: major >= 7,
        "raise_if_triton_unavailable": lambda *_: None,
        "is_bf16_supported": lambda *_, **__: major >= 8,
    }


@contextlib.contextmanager
def fake_gpu(device: Device) -> Iterator[None]:
    """torch, Inductor and Triton believe in this GPU. Raises NotAskableError where it cannot be imitated."""
    answers, more = _answers(device), _interface_answers(device)
    major, minor = capability(device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_device_guard())
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        if torch.version.cuda is None:
            stack.enter_context(mock.patch.object(torch.version, "cuda", "12.8"))
            stack.enter_context(mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _cudnn_format))
        for interface in (device_interface.CudaInterface, device_interface.CudaInterface.Worker):
            for name, answer in {**answers, **more}.items():
                if hasattr(interface, name):
                    stack.enter_context(mock.patch.object(interface, name, staticmethod(answer)))
        if hasattr(fake_tensor, "init_gpu_context"):  # up to torch 2.11: would make a real CUDA tensor
            stack.enter_context(mock.patch.object(fake_tensor, "init_gpu_context", return_value=None))
        stack.enter_context(_driver(GPUTarget("cuda", major * 10 + minor, 32)))
        stack.enter_context(_fresh_answers())
        yield


def _cudnn_format(input: torch.Tensor, weight: torch.Tensor, *_: object) -> torch.memory_format:
    """The layout of a convolution's result with cuDNN (torch 2.13, ConvUtils.h): channels last where one operand is.

    A build without CUDA has no cuDNN and would choose a backend that always gives contiguous results.
    """
    suggested = {torch._prims_common.suggest_memory_format(t) for t in (input, weight)}
    for layout in (torch.channels_last, torch.channels_last_3d):
        if layout in suggested and torch.float64 not in (input.dtype, weight.dtype):
            return layout
    return torch.contiguous_format


@contextlib.contextmanager
def _driver(target: GPUTarget) -> Iterator[None]:
    config = triton.runtime.driver
    before = getattr(config, "_active", None)
    config.set_active(FakeDriver(target))
    try:
        yield
    finally:
        config._active = before  # reset_active() would look for libcuda


REMEMBERING = (
    "torch._inductor.utils",
    "torch._inductor.codegen.cuda.cuda_env",
    "torch.utils._triton",
)
"""Modules whose cached functions say something of the device."""


@contextlib.contextmanager
def _fresh_answers() -> Iterator[None]:
    """Inductor remembers what a device is; two devices asked about in one process must not share that."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    for name in REMEMBERING:
        with contextlib.suppress(ImportError):
            for function in vars(import_module(name)).values():
                clear = getattr(function, "cache_clear", None)
                if clear is not None and getattr(function, "__module__", "") == name:
                    clear()
    hints.DeviceProperties.create.cache_clear()


def takes_device(function: Callable[..., Any]) -> bool:
    """Whether joint_graph.lazy_init takes the device (torch 2.11 and later)."""
    return bool(inspect.signature(function).parameters)
