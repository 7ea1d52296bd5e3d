"""Our Triton for a stored region: its text at once, what the compiler makes of it from a child process. Raises Problem.

The child has limits, sees no GPU and launches nothing; what it answers is kept on disk.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from app.errors import Problem, not_found, without_text
from app.jobs.local_runner import Limits, LocalRunner
from app.lru_cache import Recent
from app.objects.common import Binding
from app.objects.evidence import Figures
from app.objects.kernel import Machine, Machines, OwnKernel, OwnMachines
from app.objects.region import AnyRegion, RegionShape
from app.objects.task import MachinesTask
from app.requests.state import ServerState
from profiler.child.limits import GIB
from profiler.child.process import FD, FORK
from profiler.hardware import DEFAULT_DEVICE, find_device
from profiler.oracle.cache import Cache
from profiler.oracle.compiler.targets import TARGETS

if TYPE_CHECKING:
    from kernels.own_model import Own

TIMEOUT_S = 90.0
MEMORY_BYTES = 2 * GIB
WAIT_S = 60.0
"""Longest wait for the child that compiles for somebody else: there is one at a time."""
WAITING = 4
"""Requests that wait for it or have it; more would hold all threads that answer requests."""
KEPT = 64
"""Texts of regions looked at last."""

_one = threading.Lock()
_waiting = threading.BoundedSemaphore(WAITING)
_known: Recent[Own] = Recent(KEPT)


def own_of(
    state: ServerState, region: AnyRegion, candidate: str | None = None, validation: Figures | None = None
) -> Own:
    """Our Triton for a region. Problem: 422 without a text or for a candidate that does not fit, 503 when busy."""
    text = _text(region)
    sizes = first_binding(region.get("shapes") or ())
    candidates = validation["candidates"] if validation else []
    times = [(c["name"], c.get("status"), c.get("time_us")) for c in candidates]
    key = hashlib.sha256(repr((text, sorted(sizes.items()), candidate, times)).encode()).hexdigest()
    try:
        return _known.of(key, lambda: state.service.own_code(text, sizes, candidate, validation))
    except KeyError:
        detail = f"{str(candidate)[:80]!r} is no Triton candidate of this region."
        raise Problem(422, "candidate-unknown", "", detail) from None


def machines_of(state: ServerState, region: AnyRegion, own: Own, device: str | None = None) -> OwnMachines:
    """What Triton's compiler makes of each kernel of one call.

    device: the region's advice says which, unless one is named. Problem: 422 where there is no kernel, the GPU has no
    target or the compiler refuses; 503 where the child could not answer.
    """
    if not own.candidate:
        raise Problem(422, "no-kernel", "", f"There is no Triton kernel for this region: {own.reason}.")
    advice = region.get("advice")
    gpu = find_device(device or (advice["device"] if advice else "") or DEFAULT_DEVICE)
    if gpu is None or gpu.arch not in TARGETS:
        arch = "" if gpu is None else f" ({gpu.arch})"
        detail = f"Triton compiles for none of this GPU's kind{arch}. It does for {', '.join(TARGETS)}."
        raise Problem(422, "no-triton-target", "", detail)
    request: MachinesTask = {
        "text": _text(region), "sizes": first_binding(region.get("shapes") or ()), "candidate": own.candidate,
        "arch": gpu.arch,
    }  # fmt: skip
    question = {"ask": "own-machines", **request, "source": hashlib.sha256(own.source.encode()).hexdigest()}
    cache = Cache(state.settings.oracle_dir)
    made = cast("Machines | None", cache.get(question)) or _compile(state, request, cache, question)
    return {"candidate": own.candidate, "device": gpu.name, "arch": gpu.arch, "kernels": made["kernels"]}


def _compile(state: ServerState, request: MachinesTask, cache: Cache, question: dict[str, object]) -> Machines:
    if not _waiting.acquire(blocking=False):
        raise _busy()
    try:
        if not _one.acquire(timeout=WAIT_S):
            raise _busy()
        try:
            # Whoever had the child before may have asked for the same.
            made = cast("Machines | None", cache.get(question))
            if made is None:
                made = _by_child(state, request)
                cache.put(question, dict(made))
            return made
        finally:
            _one.release()
    finally:
        _waiting.release()


def _busy() -> Problem:
    return Problem(
        429,
        "compiler-busy",
        "",
        "The compiler is busy with another kernel. Try again in a moment.",
        headers={"Retry-After": "5"},
    )


def _by_child(state: ServerState, request: MachinesTask) -> Machines:
    log = state.settings.logs_dir / f"machines-{secrets.token_hex(8)}.log"
    try:
        ended = LocalRunner(templates=state.templates).run(
            [FORK, "task", "machines", FD],
            request,
            limits=Limits(TIMEOUT_S, 2.0, MEMORY_BYTES),
            log=log,
            tick=lambda: "drop" if state.closing.is_set() else "go",
        )
    except OSError:  # no process to be had
        raise _busy() from None
    if ended.error is not None:
        status = 422 if ended.error["code"] == "kernel-refused" else 503
        raise Problem(status, str(ended.error["code"]), "", str(ended.error["message"]))
    log.unlink(missing_ok=True)
    value: Machines = ended.value
    return value


def first_binding(shapes: Sequence[RegionShape]) -> Binding:
    """The sizes of a region's first binding, as its API object has them."""
    return dict(shapes[0].get("binding") or {}) if shapes else {}


def _text(region: AnyRegion) -> str:
    text = region.get("text")
    if not text:
        raise without_text()
    return text


def keys(kernels: Sequence[Machine]) -> list[str]:
    """A name for each kernel of one call: its own; NAME@2 for the second of that name."""
    seen: dict[str, int] = {}
    named = []
    for kernel in kernels:
        name = kernel["kernel"]
        seen[name] = seen.get(name, 0) + 1
        named.append(name if seen[name] == 1 else f"{name}@{seen[name]}")
    return named


def kernel_named(machines: OwnMachines, key: str) -> Machine:
    """One of its kernels by the name that `keys` gives, or 404."""
    for name, kernel in zip(keys(machines["kernels"]), machines["kernels"], strict=True):
        if name == key:
            return {**kernel}
    raise not_found("kernel")


def to_json(own: Own) -> OwnKernel:
    """The API's form."""
    return {
        "candidate": own.candidate,
        "call": own.call,
        "source": own.source,
        "others": list(own.others),
        "reason": own.reason,
    }
