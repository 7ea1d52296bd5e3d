"""Where a program's tensors are, by what it names: a GPU is torch's meta device, and what reads values is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from profiler.program.autocast import Autocast
from profiler.program.guesses import READS
from profiler.program.recorder import Recorder

MOST_READ = 1 << 24
"""Values that are made up at once where a program brings them to the host."""
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Recorded as torch composes them, a few launches for every token."""
COUNTED = frozenset({torch.tensor, torch.arange, torch.linspace})
"""While a module is built their values are known: its layers are counted by them."""


class ToMeta(TorchFunctionMode):
    """A GPU that the program names is the meta device; what it moves to the processor is copied, and stays there too.

    What it makes on the processor by name stays there: transformers counts its layers' rates so. building: the module
    is not built yet.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.building = True
        self.recorder = recorder
        self.autocast = Autocast()
        self.on_host: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Tensors that were copied there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0].to("meta")
        if func is torch.Tensor.cpu:
            return self.to_host(args[0])
        if func in READING and not self.building and args[0].device.type == "meta":
            return READING[func](self, *args, **kwargs)
        moves = func is torch.Tensor.to
        leaves = moves and not kwargs.get("non_blocking") and any(map(_is_host, (*args[1:2], kwargs.get("device"))))
        if self.building and func in COUNTED and "device" not in kwargs:
            kwargs["device"] = "cpu"
        if "device" in kwargs:
            kwargs["device"] = _device(kwargs["device"], moves)
        if not self.building:
            if (name := getattr(func, "__name__", "")) in RECURRENT and self._is_of_gpu(args):
                self.recorder.gap(f"{name} runs in cuDNN on an NVIDIA GPU, in far fewer launches than are counted here")
            args, kwargs = self.autocast.cast(func, args, kwargs)
        result = func(*(_device(a, moves) for a in args), **kwargs)
        return self.to_host(result) if leaves else result

    def _is_of_gpu(self, args: Sequence[Any]) -> bool:
        return bool(args) and isinstance(args[0], torch.Tensor) and args[0].device.type == "meta"

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copied, with the host waiting for it: what is on the host already, or is being built, as it is."""
        if self.building or tensor.device.type != "meta":
            return tensor
        self.recorder.to_host = True
        try:
            made = tensor.to("meta", copy=True)
        finally:
            self.recorder.to_host = False
        self.on_host[made] = True
        return made

    def read(self, tensor: torch.Tensor, how: str) -> torch.Tensor:
        """All its values, ones where nobody knows them: the host waits for them, unless they were copied there."""
        if tensor.numel() > MOST_READ:
            raise ValueError(f"{tensor.numel():,} values are read ({how}): more than {MOST_READ:,} are not assumed")
        if tensor not in self.on_host:
            self.to_host(tensor)
        if (counts := self.recorder.counts_of(tensor)) is not None:
            self.recorder.gap(f"{READS} ({how}); {counts.said()}")
            with torch._C._DisableTorchDispatch():
                return counts.values.clone()
        self.recorder.gap(f"{READS} ({how}); assumed that each is 1")
        with torch._C._DisableTorchDispatch():
            return torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)


def _is_host(value: Any) -> bool:
    return (isinstance(value, torch.device) and value.type == "cpu") or (isinstance(value, str) and value == "cpu")


def _device(value: Any, moves: bool) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta") if value.type == "cuda" or (moves and value.type == "cpu") else value
    if isinstance(value, str) and (value.partition(":")[0] == "cuda" or (moves and value == "cpu")):
        return torch.device("meta")
    return value


def _tolist(mode: ToMeta, tensor: torch.Tensor) -> object:
    values = mode.read(tensor, "tolist")
    with torch._C._DisableTorchDispatch():
        return values.tolist()


def _numpy(mode: ToMeta, tensor: torch.Tensor, *, force: bool = False) -> Any:
    values = mode.read(tensor, "numpy")
    with torch._C._DisableTorchDispatch():
        return values.numpy(force=force)


def _array(mode: ToMeta, tensor: torch.Tensor, dtype: Any = None, copy: bool | None = None) -> object:
    made = _numpy(mode, tensor)
    return made if dtype is None else made.astype(dtype)


def _formatted(mode: ToMeta, tensor: torch.Tensor, spec: str) -> str:
    return format(tensor.item() if tensor.dim() == 0 else mode.read(tensor, "format"), spec)


def _printed(mode: ToMeta, tensor: torch.Tensor, **_: object) -> str:
    if tensor not in mode.on_host:
        mode.to_host(tensor)
        mode.recorder.gap(f"{READS} (printed)")
    return f"tensor(..., size={tuple(tensor.shape)})"


READING: Mapping[object, Callable[..., object]] = {
    torch.Tensor.tolist: _tolist,
    torch.Tensor.numpy: _numpy,
    torch.Tensor.__array__: _array,
    torch.Tensor.__format__: _formatted,
    torch.Tensor.__repr__: _printed,
}
"""Methods that need the values of a tensor on the host."""
