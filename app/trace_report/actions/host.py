"""What the host does while the GPU waits for it, and what to do about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.objects.trace import ActionWhere, HostKind, HostTime
from app.trace_report.actions.model import Blocker, Option, where_at
from app.trace_report.actions.recording import STARTING
from app.trace_report.step_model import Change, Left, Step
from app.units import share

WAITS = (
    "synchronise", "scalar-read", "tensor-branch", "value-comparison", "data-dependent-size", "copy-to-host",
    "copy-from-host",
)  # fmt: skip
"""Kinds of compile_blocker_kinds in which the host waits for the GPU."""
WORTH, WORTH_A_SEARCH, WORTH_A_READ = 0.02, 0.1, 0.2
"""Share of the step from which waiting is worth a line: where something can be typed, where it is to be found, and
where a call is known that waits, though launches take longer."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about one thing that the host does. {name}, {following}: of the time that it is about; {call}: of the
    operation's own name, without its namespace."""

    title: str
    call: str
    because: str


OF_OPERATIONS: tuple[tuple[tuple[str, ...], Remedy], ...] = (
    (
        ("aten::_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention"),
        Remedy(
            "Keep cuDNN from planning attention for every new length",
            "torch.backends.cuda.enable_cudnn_sdp(False)",
            "inside {name}: cuDNN makes a plan for every shape that it has not seen, FlashAttention makes none; "
            "or pad the lengths to a few",
        ),
    ),
    (
        ("aten::cudnn_convolution", "aten::convolution_backward", "aten::miopen_convolution"),
        Remedy(
            "Keep cuDNN from choosing convolutions anew",
            "torch.backends.cudnn.benchmark = False",
            "inside {name}: with benchmark=True every new size is tried with every algorithm; or keep the sizes to a "
            "few",
        ),
    ),
    (
        ("aten::unflatten_dense_tensors", "aten::flatten_dense_tensors"),
        Remedy(
            "Keep DDP from broadcasting the model's buffers before every forward",
            "model = DistributedDataParallel(model, broadcast_buffers=False)",
            "inside {name}: batch norm's statistics are sent from rank 0 and put back one by one; SyncBatchNorm, or "
            "statistics of each rank's own, need none of it",
        ),
    ),
    (
        ("Torch-Compiled Region", "TorchDynamo Cache Lookup", "CompiledFunction"),
        Remedy(
            "Find what slows the host inside compiled code",
            'TORCH_LOGS="recompiles,graph_breaks" python train.py',
            "inside {name}: guards, recompilations and launches; a CUDA graph has none of them",
        ),
    ),
)
"""By how the operation's name begins."""

OF_KINDS: dict[HostKind, Remedy] = {
    "inputs": Remedy(
        "Prepare inputs while the GPU works",
        "loader = DataLoader(dataset, collate_fn=prepare, num_workers=8, pin_memory=True)",
        "in code outside of PyTorch's operations, after which inputs are copied to the GPU: workers can do it "
        "meanwhile, or the GPU itself",
    ),
    "library": Remedy("Find what {call} does on the host", "", "inside {name}, which leaves the GPU idle meanwhile"),
    "cpu": Remedy(
        "Move {call} to the GPU, or out of the step", "", "inside {name}, which launches nothing: on the CPU"
    ),
    "sync": Remedy("Take the host's wait out of the step", "", "in a call that waits for the GPU"),
    "python": Remedy("Find what Python does before {following}", "", "outside of every operation, in Python"),
}
IN_PROCESS, IN_WORKERS = (
    Remedy(
        "Load data in worker processes",
        "loader = DataLoader(dataset, num_workers=8, pin_memory=True, persistent_workers=True)",
        "in the data loader, which has no workers and reads between the steps",
    ),
    Remedy(
        "Give the data loader more workers, or less to do",
        "loader = DataLoader(dataset, num_workers=16, prefetch_factor=4, pin_memory=True)",
        "waiting for the data loader's workers, which are slower than the step",
    ),
)
UNKNOWN = "it waits for the GPU, for data, or does slow Python"


def host_waits(step: Step, times: Sequence[HostTime], blockers: Sequence[Blocker]) -> list[Option]:
    """One option for each thing that the host does for WORTH of the step, and one for what is not known of the rest.

    Only the time's length is known: what is saved is bounded by it. times: as the trace has them; of a trace without
    them everything is the rest.
    """
    wall = step.recorded_us or step.parts["wall_us"]  # pauses are as recorded
    spent: dict[Remedy, list[HostTime]] = {}
    for one in times:
        if one["kind"] not in STARTING and not one.get("other_steps"):
            spent.setdefault(_remedy(one), []).append(one)
    options, known = [], sum(one["time_us"] for one in times if one["kind"] in STARTING)
    for remedy, parts in spent.items():
        waiting = sum(one["time_us"] for one in parts)
        if waiting < (WORTH_A_SEARCH if remedy.title.startswith("Find ") else WORTH) * wall:
            continue
        known += waiting
        names = " and ".join(dict.fromkeys(f"`{one['name']}`" for one in parts if one["name"]))
        because = f"the GPU waits for {share(waiting / wall)} of the step while the host is {remedy.because}"
        module = next((one["module"] for one in parts if one["module"]), "")
        options.append(_option(f"host:{remedy.title}", remedy.title, remedy.call, because.format(name=names), waiting,
                               where_at(module, "")))  # fmt: skip
    options += [_in_other_steps(one) for one in times if one.get("other_steps")]
    return [*options, *_rest(step, blockers, step.parts["idle_host_us"] - known)]


def _in_other_steps(one: HostTime) -> Option:
    """A loader that the step in the middle does not wait for, and others do: longer than anything in it."""
    remedy = _remedy(one)
    because = (
        f"in the mean of all recorded steps the GPU waits {one['time_us'] / 1e3:.1f} ms of each while the host is "
        f"{remedy.because}; the step that is shown has no such wait"
    )
    return Option(
        f"host:{remedy.title}", "host", "wait", remedy.title, remedy.call, because,
        {"kind": "observed", "text": "what the other steps show"}, None, (), counted=False, first=True,
    )  # fmt: skip


def _remedy(one: HostTime) -> Remedy:
    """With the title filled in; the names stay to be filled."""
    kind, name = one["kind"], one["name"]
    if kind == "loader":
        return IN_WORKERS if "MultiProcessing" in name else IN_PROCESS
    for begins, remedy in OF_OPERATIONS:
        if kind in ("library", "cpu") and name.startswith(begins):
            return remedy
    known = OF_KINDS[kind]
    if kind == "python" and name:
        return Remedy(f"Find what Python does in `{name}`", known.call, known.because)
    title = known.title.format(call=f"`{name.removeprefix('aten::')}`", following=f"`{one['following']}`")
    return Remedy(title, known.call, known.because)


def _rest(step: Step, blockers: Sequence[Blocker], waiting: float) -> list[Option]:
    """What nothing else names: it may be in a call that torch.compile would stop at. Where nothing names it and the GPU
    waits longer for launches, it is the same host's many short pauses, and a graph of the step ends more of them than a
    search does."""
    wall = step.recorded_us or step.parts["wall_us"]
    named = _wait_named(blockers)
    least = WORTH_A_READ * wall if named else step.parts["idle_launch_us"]
    if waiting < max(WORTH_A_SEARCH * wall, min(least, step.parts["idle_launch_us"])):
        return []
    what = f"it may wait in {named['op']}: {named['remedy']}" if named else UNKNOWN
    because = f"nothing runs on the GPU for {share(waiting / wall)} of the step because of the host: {what}"
    return [_option("host-wait", "Find what the host waits for", "", because, waiting, _where(named))]


def _option(name: str, title: str, call: str, because: str, waiting: float, where: ActionWhere | None) -> Option:
    return Option(
        name, "host", "wait", title, call, because,
        {"kind": "bound", "text": "between nothing and all of the recorded waiting"},
        Change(ended_us=Left(0.0, waiting / 2, waiting)), (), where=where, counted=False,
    )  # fmt: skip


def _wait_named(blockers: Sequence[Blocker]) -> Blocker | None:
    """What makes the host wait for the GPU: a call that synchronises, or a value that is read; best with its line."""
    waits = [b for b in blockers if b["kind"] in WAITS]
    return min(waits, key=lambda b: (not b["sources"], WAITS.index(b["kind"])), default=None)


def _where(blocker: Blocker | None) -> ActionWhere | None:
    return (
        where_at(*((told[0] if told else "") for told in (blocker["modules"], blocker["sources"]))) if blocker else None
    )
