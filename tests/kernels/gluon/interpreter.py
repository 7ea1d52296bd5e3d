"""Runs a Gluon kernel's own text on a CPU: its warp groups as threads of which one runs at a time, in a random order.

Triton has no interpreter for Gluon. This one knows what the kernels of this project use of it on Hopper: barriers in
shared memory with phases, copies by TMA that arrive at a moment of their own, products that are read off the shared
memory when they are waited for. It raises HazardError where a run could go wrong on a GPU: a deadlock, a buffer that is
written while a copy or a product may still read it, bytes that nobody expects, a barrier passed twice over.

Layouts, registers and the split of a warp group into warps are not looked at: those the compiler checks or makes.
"""

from __future__ import annotations

import math
import random
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.language import constexpr

SHORT_S = 60.0


class HazardError(Exception):
    """What this kernel does could be wrong on a GPU."""


class Clock:
    """Which of the threads runs, and which copies are under way. seed: of the order in which they take turns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Condition()
        self.waiting: dict[int, Callable[[], bool]] = {}
        self.running: int | None = None
        self.flying: list[Callable[[], None]] = []
        self.fault: BaseException | None = None

    def until(self, ready: Callable[[], bool]) -> None:
        """Let others run, and go on when `ready` holds and the turn comes."""
        me = threading.get_ident()
        with self.lock:
            self.waiting[me] = ready
            if self.running == me:
                self.running = None
                self._choose()
            else:
                self.lock.notify_all()  # to `start`, which counts
            if not self.lock.wait_for(lambda: self.running == me or self.fault is not None, SHORT_S):
                self.fault = HazardError("a thread had no turn for a minute")
            if self.fault is not None:
                raise HazardError("stopped") from self.fault
            del self.waiting[me]

    def start(self, threads: int) -> None:
        """Give the first turn, once so many threads wait for one."""
        with self.lock:
            if not self.lock.wait_for(lambda: len(self.waiting) == threads, SHORT_S):
                self.fault = HazardError("a thread did not start")
            self._choose()

    def leave(self, fault: BaseException | None) -> None:
        """This thread is done."""
        with self.lock:
            self.fault = self.fault or fault
            self.running = None
            self._choose()

    def _choose(self) -> None:
        while self.running is None and self.fault is None and (self.waiting or self.flying):
            able = [i for i, ready in self.waiting.items() if ready()]
            if self.flying and (not able or self.random.random() < 0.3):
                try:
                    self.flying.pop(self.random.randrange(len(self.flying)))()
                except HazardError as fault:
                    self.fault = fault
            elif able:
                self.running = self.random.choice(able)
            else:
                self.fault = HazardError("a deadlock: all wait, and no copy is under way")
        self.lock.notify_all()


class Shared:
    """Shared memory: an allocation of several buffers, or, with `at`, one of them.

    By buffer, written: how often it was. readers: copies and products that may still read it. filling: copies into it
    that are under way.
    """

    def __init__(
        self, data: torch.Tensor, written: list[int], readers: list[int], filling: list[int], at: int | None = None
    ) -> None:
        self.data, self.written, self.readers, self.filling, self.at = data, written, readers, filling, at

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    def index(self, i: int) -> Shared:
        assert self.at is None
        if not 0 <= i < len(self.written):
            raise HazardError(f"index {i} of {len(self.written)} buffers")
        return Shared(self.data[i], self.written, self.readers, self.filling, i)

    def reshape(self, shape: Sequence[int]) -> Shared:
        return Shared(self.data.view(*shape), self.written, self.readers, self.filling, self.at)

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.data.permute(*order), self.written, self.readers, self.filling, self.at)

    def store(self, value: torch.Tensor) -> None:
        assert self.at is not None
        if self.readers[self.at]:
            raise HazardError("a buffer is written that a copy or a product may still read")
        self.written[self.at] += 1
        self.data.copy_(value)


class Barrier:
    """An mbarrier: a phase is over when all arrived and all bytes came."""

    def __init__(self) -> None:
        self.count = self.missing = self.bytes = self.phase = 0

    def settle(self) -> None:
        if self.missing < 0:
            raise HazardError("more arrive at a barrier than it waits for")
        if self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.missing = self.count


class Barriers(list[Barrier]):
    """An array of them."""

    def index(self, i: int, *_: Any) -> Barrier:  # type: ignore[override]
        return self[i]


class Descriptor:
    """A tensor as TMA sees it: blocks of `block` elements, zeros beyond its ends."""

    layout = None

    def __init__(self, tensor: torch.Tensor, block: Sequence[int]) -> None:
        self.tensor, self.block, self.dtype = tensor, tuple(block), tensor.dtype
        self.block_type = types.SimpleNamespace(nbytes=math.prod(block) * tensor.element_size())

    def span(self, at: Sequence[int]) -> tuple[slice, ...]:
        if any(i < 0 for i in at):
            raise HazardError(f"a copy from before the beginning: {at}")
        return tuple(slice(i, i + n) for i, n in zip(at, self.block, strict=True))


class Product:
    """What is being multiplied: value() once it may be known."""

    def __init__(self, a: Any, b: Shared, acc: torch.Tensor, add: bool) -> None:
        self.a, self.b, self.acc, self.add = a, b, acc, add
        self.versions = [(x, x.written[x.at]) for x in (a, b) if isinstance(x, Shared) and x.at is not None]
        for x, _ in self.versions:
            if x.filling[x.at]:
                raise HazardError("a product of a buffer whose copy has not come")
            x.readers[x.at] += 1
        self.done: torch.Tensor | None = None

    def finish(self) -> None:
        if self.done is None:
            for x, version in self.versions:
                x.readers[x.at] -= 1
                if x.written[x.at] != version:
                    raise HazardError("a buffer was written while a product read it")
            left = (self.a.data if isinstance(self.a, Shared) else self.a).float()
            made = left @ self.b.data.float()
            self.done = made + self.acc if self.add else made


class Pointer:
    """Where plain stores go: a tensor's elements from an offset."""

    def __init__(self, flat: torch.Tensor, offset: Any = 0) -> None:
        self.flat, self.offset = flat, offset

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.flat, self.offset + other)


class Program:
    """One program of a launch: what the kernel's names mean in it."""

    def __init__(self, program: int, seed: int) -> None:
        self.clock = Clock(seed)
        self.local = threading.local()
        self.gl = types.SimpleNamespace(
            program_id=lambda axis: program, int64=None, float32=torch.float32, cast=lambda x, kind: x,
            minimum=min, maximum=torch.maximum, where=_where, cdiv=lambda a, b: -(-a // b),
            arange=lambda first, end, layout: torch.arange(first, end),
            zeros=lambda shape, dtype, layout: torch.zeros(*shape, dtype=dtype),
            full=lambda shape, value, dtype, layout: torch.full(tuple(shape), value, dtype=dtype),
            exp2=torch.exp2, log2=torch.log2, max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis),
            convert_layout=lambda x, layout: x, static_range=range, static_assert=_must, store=self.store,
            load=lambda at: int(at.flat[at.offset]), warp_specialize=self.specialize,
            allocate_shared_memory=self.allocate, NVMMADistributedLayout=_layout, DotOperandLayout=_layout,
            SliceLayout=_layout,
        )  # fmt: skip
        self.hopper = types.SimpleNamespace(
            mbarrier=types.SimpleNamespace(
                MBarrierLayout=lambda: "barriers", init=self.init, wait=self.wait, arrive=self.arrive,
                expect=self.expect,
            ),
            tma=types.SimpleNamespace(
                async_copy_global_to_shared=self.load, async_copy_shared_to_global=self.save, store_wait=self.saved
            ),
            warpgroup_mma=self.multiply, warpgroup_mma_wait=self.products, fence_async_shared=lambda: None,
        )  # fmt: skip

    def allocate(self, dtype: Any, shape: Sequence[int], layout: Any) -> Any:
        if layout == "barriers":
            return Barriers(Barrier() for _ in range(shape[0]))
        data = torch.full(tuple(shape), math.nan, dtype=dtype)
        return Shared(data, [0] * shape[0], [0] * shape[0], [0] * shape[0])

    def init(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.missing = count

    def wait(self, barrier: Barrier, phase: int) -> None:
        if phase not in (0, 1):
            raise HazardError(f"phase {phase} is neither 0 nor 1")
        # A barrier passes who waits for the phase before its own; two phases on, the wait would hang or pass wrongly.
        self.clock.until(lambda: (barrier.phase & 1) != phase)

    def arrive(self, barrier: Barrier, count: int = 1) -> None:
        barrier.missing -= count
        barrier.settle()
        self.clock.until(lambda: True)

    def expect(self, barrier: Barrier, size: int) -> None:
        barrier.bytes += size
        barrier.missing -= 1
        barrier.settle()

    def load(self, source: Descriptor, at: Sequence[int], barrier: Barrier, into: Shared) -> None:
        assert into.at is not None
        if into.readers[into.at]:
            raise HazardError("a buffer is filled that a copy or a product may still read")
        into.written[into.at] += 1
        into.filling[into.at] += 1
        into.data.fill_(math.nan)
        found = source.tensor[source.span(at)]

        def arrive() -> None:
            into.filling[into.at] -= 1
            into.data.zero_()
            into.data[tuple(slice(n) for n in found.shape)] = found
            barrier.bytes -= source.block_type.nbytes
            if barrier.bytes < 0:
                raise HazardError("bytes arrive that nobody expects")
            barrier.settle()

        self.clock.flying.append(arrive)

    def save(self, target: Descriptor, at: Sequence[int], source: Shared) -> None:
        assert source.at is not None
        source.readers[source.at] += 1
        into = target.tensor[target.span(at)]
        mine = self.local.__dict__.setdefault("saving", [])
        mine.append(source)

        def arrive() -> None:
            into.copy_(source.data[tuple(slice(n) for n in into.shape)])
            source.readers[source.at] -= 1
            mine.remove(source)

        self.clock.flying.append(arrive)

    def saved(self, pending: int) -> None:
        mine = self.local.__dict__.setdefault("saving", [])
        self.clock.until(lambda: len(mine) <= pending)

    def multiply(self, a: Any, b: Shared, acc: Any, use_acc: bool = True, is_async: bool = False) -> Product:
        made = Product(a, b, acc.done if isinstance(acc, Product) else acc, use_acc)
        self.local.__dict__.setdefault("products", []).append(made)
        self.clock.until(lambda: True)
        if not is_async:
            self.products(0, [made])
        return made

    def products(self, left: int, deps: Sequence[Any]) -> Any:
        self.clock.until(lambda: True)
        under_way = self.local.__dict__.setdefault("products", [])
        while len(under_way) > left:
            under_way.pop(0).finish()
        out = tuple(d.done if isinstance(d, Product) and d.done is not None else d for d in deps)
        return out[0] if len(out) == 1 else out

    def store(self, to: Pointer, value: torch.Tensor, mask: torch.Tensor) -> None:
        to.flat[(to.offset if isinstance(to.offset, torch.Tensor) else torch.tensor(to.offset))[mask]] = value[mask]

    def specialize(self, parts: Sequence[tuple[Any, tuple[Any, ...]]], warps: Any, registers: Any) -> None:
        threads = []

        def work(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
            fault: BaseException | None = None
            try:
                self.clock.until(lambda: True)
                function(*arguments)
                left = [p for p in self.local.__dict__.get("products", ()) if p.done is None]
                if left or self.local.__dict__.get("saving"):
                    raise HazardError("a warp group ends before its products and copies do")
            except BaseException as caught:  # handed to the caller
                fault = caught
            self.clock.leave(fault)

        for function, arguments in parts:
            threads.append(threading.Thread(target=work, args=(function, arguments), daemon=True))
        for thread in threads:
            thread.start()
        self.clock.start(len(parts))
        for thread in threads:
            thread.join()
        if self.clock.fault is not None:
            raise self.clock.fault
        while self.clock.flying:
            self.clock.flying.pop()()


def bound(module: types.ModuleType, program: Program) -> dict[str, Any]:
    """The names of a kernel's module, its jit functions as plain ones that see the interpreter's language."""
    names = dict(vars(module))
    for name, value in vars(module).items():
        if hasattr(value, "fn") and hasattr(value, "arg_names"):
            names[name] = types.FunctionType(value.fn.__code__, names, name, value.fn.__defaults__)
        elif isinstance(value, constexpr):
            names[name] = value.value
    names |= {"gl": program.gl, "hopper": program.hopper}
    return names


def run(module: types.ModuleType, kernel: str, programs: int, *arguments: Any, seed: int = 0, **constants: Any) -> None:
    """Launch `kernel` of a module on so many programs, one after the other. Raises HazardError."""
    for i in range(programs):
        program = Program(i, seed * 1000 + i)
        bound(module, program)[kernel](*arguments, **constants)


def _layout(*_: Any) -> None:
    return None


def _where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, torch.Tensor):
        kind = next((x.dtype for x in (a, b) if isinstance(x, torch.Tensor)), torch.float32)
        return torch.where(condition, torch.as_tensor(a, dtype=kind), torch.as_tensor(b, dtype=kind))
    return a if condition else b


def _must(condition: bool) -> None:
    if not condition:
        raise HazardError("a static assertion does not hold")
