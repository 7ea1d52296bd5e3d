"""One candidate's process, the part that checks: inputs, float64 references, cases. `worker` has the commands."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
import torch

from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate import integrity, launch_ablation
from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.indices import reads_by_value
from kernels.measure.candidate.reference import NoReferenceError, Reference, changed, reference
from kernels.measure.candidate.room import Room, rooms
from kernels.measure.candidate.sampled_rows import FEW_ROWS, Rows, rows_of, take
from kernels.measure.candidate.samples import Sample, copied
from kernels.measure.candidate.task import Task, WrongOutputError, as_call, check_kind, kept, of_rows, owned
from kernels.measure.judge import AFTER_TIMING, BYTES, remarkable
from kernels.measure.messages import LEFT_RUNNING, Case, InRoom, Note, OutputError
from kernels.measure.processes.channel import Channel
from kernels.measure.turn import Turn
from profiler.region.language.program import Program
from profiler.region.model import Region

MOST_CHANGED_INPUTS = 6
MOST_ROOMS_S = 30.0  # for the rooms of one task's cases; past it eager's own error alone is the bound
WHOLE_ROOMS_S = 3.0  # for those of one case, of all its rows; past it some of them are looked at
RUNS_OF_ROOMS = 16  # times as long as the reference: exact, rounded and at the borders, each rounded run twice as long
PART_IN_MEMORY = 8  # of so many rows one, where all of them do not fit
SLOW_CASE_S = 1.5  # a case slower than this is not repeated for every distribution
SAMPLES = 60_000  # random elements that are enough to tell a dropout rate of 0.30 from 0.32
MOST_SAMPLING_S = 2.0
MOST_CHECKING_S = 2.0  # of one task's timed samples; the latest is checked whatever it takes
MOST_ELEMENTS = 2**26  # of inputs and outputs together, in a reference of some rows
ABLATION_SET = 3  # an input set that no case uses


@dataclass(frozen=True, slots=True)
class Draw:
    """The inputs of one case. number: of the set; fresh: names of the inputs that are another set's."""

    number: int = 0
    distribution: str = "normal"
    fresh: tuple[str, ...] = ()


FIRST = Draw()
FRESH_SET = 2
BEFORE_REFILL, REFILL = Draw(number=4), Draw(number=5)
MOST_FORMER = 12  # former contents of an input set that are looked at: more than there are rounds


Left: TypeAlias = Mapping[int, torch.Tensor]
"""By the input's number what a call left in it, of those that it changed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What outputs are held against. task, values: what the reference was computed of. text: what is to be said of it.

    rows: numbers of the rows that it has, None for all; dims: which dimension of each output has them, input_dims: of
    each input. took_s: what the reference took.
    """

    task: Task
    values: list[torch.Tensor]
    expected: Reference
    text: str = ""
    rows: list[int] | None = None
    dims: tuple[int, ...] = ()
    input_dims: tuple[int | None, ...] = ()
    took_s: float = 0.0

    def of_outputs(self) -> Seen:
        """For the outputs alone, without what is left in the inputs."""
        return replace(self, expected=self.expected.of_outputs())

    def inputs_of(self, left: Left) -> list[torch.Tensor]:
        """What a call left in the inputs that are expected to be written: in those not in `left` what it was given."""
        return [self._taken(left[n], n) if n in left else self.values[n] for n in self.expected.written]

    def _taken(self, value: torch.Tensor, number: int) -> torch.Tensor:
        return value if self.rows is None else take(value, self.input_dims[number], self.rows)

    def random(self) -> frozenset[int]:
        """Numbers of the results that depend on random numbers."""
        count = len(self.expected.of_outputs().outputs)
        drawn = (n for n, i in enumerate(self.expected.written, count) if i in self.task.random_inputs)
        return frozenset(n for n in self.task.random if n < count) | frozenset(drawn)

    def of(self, outputs: Sequence[torch.Tensor], left: Left | None = None) -> list[torch.Tensor]:
        """What of the outputs, then of what was left in the inputs, there is a reference for."""
        of_inputs = [] if left is None else self.inputs_of(left)
        if self.rows is None:
            return [*outputs, *of_inputs]
        return [*(take(o, dim, self.rows) for o, dim in zip(outputs, self.dims, strict=True)), *of_inputs]

    def case(self, distribution: str, errors: Sequence[OutputError]) -> Case:
        """Of the errors of outputs and of what was left in inputs."""
        count = len(errors) - len(self.expected.written)
        names = [self.task.region.inputs[n].name for n in self.expected.written]
        written = dict(zip(names, errors[count:], strict=True))
        return Case(distribution, self.expected.precision, list(errors[:count]), self.text, written=written)

    def with_the_rest(self, errors: list[OutputError], outputs: Sequence[torch.Tensor]) -> list[OutputError]:
        """Of the rows without a reference it is known that they are finite, where the others are throughout."""
        if self.rows is None:
            return errors
        return [
            msgspec.structs.replace(e, misfits=infinite(o))
            if o.dtype.is_floating_point and not e.misfits and bool(right.isfinite().all())
            else e
            for e, o, right in zip(errors, outputs, self.expected.outputs, strict=True)
        ]


class Checker:
    """What a candidate is called with and held against."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.device = "cpu"
        self.seed = 0
        self.memory_bytes = 0.0
        self.turn = Turn(None, channel)
        self.rooms_s = 0.0  # that asking for rooms has taken of this task's checks, or of its timed samples

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def upstream(self, built: Program) -> tuple[torch.Tensor | None, ...]:
        """One fixed random gradient per floating output, the same in every process."""
        gradients: list[torch.Tensor | None] = []
        for number, fake in enumerate(built.outputs):
            if not fake.dtype.is_floating_point:
                gradients.append(None)
                continue
            seed = tensors.seed_of(self.seed, "upstream", number, tuple(fake.shape))
            generator = torch.Generator(device=self.device).manual_seed(seed)
            wide = torch.randn(tuple(fake.shape), device=self.device, generator=generator)
            gradients.append(wide.to(fake.dtype))
        return tuple(gradients)

    def inputs(
        self,
        region: Region,
        sizes: Mapping[str, int],
        scales: Mapping[str, float],
        number: int = 0,
        distribution: str = "normal",
        fresh: Mapping[str, int] | None = None,
        seed: int | None = None,
    ) -> list[torch.Tensor]:
        """One set of inputs; those of forward and backward require their gradients. seed: None for this candidate's."""
        return list(self.one_by_one(region, sizes, scales, number, distribution, fresh, seed))

    def one_by_one(
        self,
        region: Region,
        sizes: Mapping[str, int],
        scales: Mapping[str, float],
        number: int = 0,
        distribution: str = "normal",
        fresh: Mapping[str, int] | None = None,
        seed: int | None = None,
    ) -> Iterator[torch.Tensor]:
        """The same, each made when it is asked for."""
        seed = self.seed if seed is None else seed
        made = tensors.one_by_one(region, sizes, self.device, seed, number, distribution, scales, fresh)
        for item in region.inputs:  # without a name for what is made: it would hold one while the next is drawn
            yield next(made).requires_grad_(item.requires_grad and region.requires_grad)

    def drawn(self, task: Task, draw: Draw) -> list[torch.Tensor]:
        """The inputs of a case."""
        return list(self.drawn_one_by_one(task, draw))

    def drawn_one_by_one(self, task: Task, draw: Draw) -> Iterator[torch.Tensor]:
        """The same, each made when it is asked for."""
        fresh = dict.fromkeys(draw.fresh, FRESH_SET) or None
        return self.one_by_one(task.region, task.sizes, task.scales, draw.number, draw.distribution, fresh)

    def timed_inputs(self, task: Task, number: int, secret: int) -> list[torch.Tensor]:
        """Inputs of a timed call: of a seed that is drawn when they are made, and used for nothing else."""
        seed = tensors.seed_of(self.seed, "timed", secret)
        return self.inputs(task.region, task.sizes, task.scales, number=number, seed=seed)

    def timed_one_by_one(self, task: Task, number: int, secret: int) -> Iterator[torch.Tensor]:
        """The contents of `timed_inputs`, each made when it is asked for."""
        seed = tensors.seed_of(self.seed, "timed", secret)
        return self.one_by_one(task.region, task.sizes, task.scales, number=number, seed=seed)

    def cases(self, task: Task, thorough: bool, sensitivity: bool = False, refilled: bool = False) -> list[Case]:
        """Errors on several inputs: two seeds, all distributions, and each input changed alone (does it matter?).

        sensitivity: also the errors that the first inputs' outputs would have for the changed ones (`Case.stale`).
        refilled: also on new contents in the memory of inputs that it was called on.
        """
        self.note("checking against float64")
        self.rooms_s = 0.0
        plan = [("normal", FIRST), ("normal again", Draw(number=1)), *([("refilled", REFILL)] if refilled else [])]
        least = len(plan)
        by_value = reads_by_value(task.built.module)
        others = [d for d in tensors.DISTRIBUTIONS[1 : 4 if thorough else 2] if not (by_value and d == "large")]
        plan += [(d, Draw(distribution=d)) for d in others]
        if thorough and not by_value and not task.region.requires_grad and not task.random:
            plan.append((tensors.SPECIAL, Draw(distribution=tensors.SPECIAL)))
        if thorough and len(task.region.inputs) > 1:
            names = [i.name for i in task.region.inputs][:MOST_CHANGED_INPUTS]
            plan += [(f"changed {name}", Draw(fresh=(name,))) for name in names]
        cases: list[Case] = []
        for name, draw in plan:
            started, asked_s = time.perf_counter(), self.rooms_s
            task.base = task.first if sensitivity and (name == "normal again" or draw.fresh) else None
            cases.append(self._case(task, name, draw))
            slow = time.perf_counter() - started - (self.rooms_s - asked_s) > SLOW_CASE_S
            if len(cases) >= least and slow:
                break
        task.first = task.base = None
        task.earlier.clear()
        return cases

    def _case(self, task: Task, name: str, draw: Draw) -> Case:
        """The candidate first, its reference after: no memory that was freed holds what is expected of it."""
        given = self.drawn(task, BEFORE_REFILL if draw is REFILL else draw)
        if draw is REFILL:
            self._remember(task, owned(kept(task.call(*given), task), task))
            tensors.refill(given, self.drawn(task, draw))
        self.poison(task)
        torch.manual_seed(tensors.seed_of(self.seed, "random", str(draw)))
        running = integrity.threads()
        outputs = owned(kept(task.call(*given), task), task)
        self.synchronize()
        check_kind(outputs, task, self.device)
        check_threads(running)
        fresh: list[torch.Tensor] = []
        left: dict[int, torch.Tensor] = {}
        for number, original in enumerate(self.drawn_one_by_one(task, draw)):
            used = given.pop(0).detach()
            if not tensors.same_bits(used, original):
                left[number] = used
            del used
            fresh.append(original)
        names = [i.name for i in task.region.inputs]
        task.mutated += [names[n] for n in left if names[n] not in task.mutated]
        seen = self.reference(task, fresh, left)
        del fresh
        if task.random and draw == FIRST:
            outputs, expected = self._more_samples(task, draw, outputs, seen.expected)
            seen = replace(seen, expected=expected)
        if draw.distribution == tensors.SPECIAL:  # only where NaN and infinities are is looked at
            errors = compare(seen.of(outputs, left), seen.expected, seen.random())
        else:
            errors = self.against(seen, outputs, left)
        repeats: bool | None = None
        if draw == FIRST and task.first is not None and not task.random:
            repeats = all(map(tensors.same_bits, task.first, outputs))
            if not repeats:
                errors = worst([errors, self.against(seen, task.first, left)])
        stale = compare(seen.of(task.base), seen.expected.of_outputs(), task.random) if task.base is not None else None
        kept_results = any(is_the_same(outputs, errors, former) for former in task.earlier)
        self._remember(task, outputs)
        made = seen.case(name, errors)
        return msgspec.structs.replace(made, repeats=repeats, stale=stale, kept=kept_results)

    def _remember(self, task: Task, outputs: tuple[torch.Tensor, ...]) -> None:
        """Copies of a case's outputs, as far as memory goes: what a later call returns is held against them."""
        size = sum(o.numel() * o.element_size() for o in outputs)
        if not task.random and (len(task.earlier) + 1) * size < max(self.memory_bytes, 2**26) / 8:
            task.earlier.append(tuple(o.clone() for o in outputs))

    def timed_case(self, task: Task) -> list[Case]:
        """The worst of the timed calls whose outputs were copied, as one case; [] where there is none."""
        self.rooms_s = 0.0
        ends = time.perf_counter() + MOST_CHECKING_S
        made: list[Case] = []
        kept_results = False
        for sample in task.samples.all():
            if made and time.perf_counter() > ends:
                break
            outputs = owned(sample.outputs, task)
            check_kind(outputs, task, self.device)
            seen = self.reference(task, self.timed_inputs(task, sample.number, sample.secret), sample.left)
            seen = seen if sample.left else seen.of_outputs()
            made.append(seen.case(AFTER_TIMING, self.against(seen, outputs, sample.left)))
            del seen
            kept_results = kept_results or self._kept_while_timed(task, sample, outputs, made[-1].outputs)
            self.free()
        return [msgspec.structs.replace(worst_case(made), kept=kept_results)] if made else []

    def _kept_while_timed(
        self, task: Task, sample: Sample, outputs: tuple[torch.Tensor, ...], errors: Sequence[OutputError]
    ) -> bool:
        """Whether what is wrong is another timed call's result, or right for what the inputs' memory held before."""
        wrong = [number for number, error in enumerate(errors) if is_wrong(error)]
        if not wrong:
            return False
        others = [s for s in task.samples.all() if (s.number, s.secret) != (sample.number, sample.secret)]
        if any(is_the_same(outputs, errors, owned(other.outputs, task)) for other in others):
            return True
        for secret in task.former.get(sample.number, ())[:MOST_FORMER]:
            seen = self.reference(task, self.timed_inputs(task, sample.number, secret)).of_outputs()
            then = compare(seen.of(outputs), seen.expected, task.random)
            if not any(is_wrong(then[number]) for number in wrong):
                return True
        return False

    def ablate_launches(self, task: Task) -> str:
        """What the candidate returns while Triton launches nothing: "same" as else, "differs", "none" asked for.

        A call that fails without its kernels needs them. On a GPU it may lose the context: nothing comes after it.
        """
        if task.random:
            return ""
        try:
            silent, asked = self._silent(task, 0)
            if not asked:
                return "none"
            spoken = owned(copied(task.call(*self._ablated(task))), task)
            same = all(map(tensors.same_bits, silent, spoken))
            if same and not all(o.is_floating_point() or o.is_complex() for o in spoken):
                # A right kernel's integers may all be what was put in the place of those that it did not write.
                silent, _ = self._silent(task, 1)
                same = all(map(tensors.same_bits, silent, spoken))
            return "same" if same else "differs"
        except Exception:
            return "differs"

    def _silent(self, task: Task, number: int) -> tuple[tuple[torch.Tensor, ...], list[str]]:
        """What comes of a call without its kernels, and which were asked for. number: of integers that none wrote."""
        given = self._ablated(task)
        self.poison(task)
        with launch_ablation.silenced(number) as asked:
            silent = owned(copied(task.call(*given)), task)
            self.synchronize()
        return silent, asked

    def _ablated(self, task: Task) -> list[torch.Tensor]:
        return self.inputs(task.region, task.sizes, task.scales, number=ABLATION_SET)

    def _more_samples(
        self, task: Task, draw: Draw, outputs: tuple[torch.Tensor, ...], expected: Reference
    ) -> tuple[tuple[torch.Tensor, ...], Reference]:
        """Random outputs of few elements, drawn again until a distribution can be told from another; of a large
        output no more is kept than tells as much.

        Draws are along a new first axis: whatever elements of one share, it is of no other.
        """
        ends = time.perf_counter() + MOST_SAMPLING_S
        drawn = {n: ([outputs[n]], [expected.outputs[n]]) for n in task.random}
        fewest = min((outputs[n].numel() for n in task.random), default=0)
        for number in range(SAMPLES // max(1, fewest)):
            if time.perf_counter() > ends:
                break
            torch.manual_seed(tensors.seed_of(self.seed, "random", str(draw), number))
            made = owned(kept(task.call(*self.drawn(task, draw)), task), task)
            again = self.reference(task, self.drawn(task, draw)).expected
            for n, (own, right) in drawn.items():
                if number < SAMPLES // max(1, outputs[n].numel()):
                    own.append(made[n])
                    right.append(again.outputs[n])
        joined = {n: (torch.stack(own), torch.stack(right)) for n, (own, right) in drawn.items()}
        return (
            tuple(joined[n][0] if n in joined else o for n, o in enumerate(outputs)),
            replace(
                expected,
                outputs=tuple(joined[n][1] if n in joined else o for n, o in enumerate(expected.outputs)),
            ),
        )

    def reference(self, task: Task, values: list[torch.Tensor], watched: Collection[int] = ()) -> Seen:
        """float64; where that does not fit float64 of some rows, else float32; the program as written where none can
        be had. watched: numbers of inputs whose contents are held against it even where it leaves them alone."""
        for wide, text in ((torch.float64, ""), (torch.float32, "float64 did not fit: compared with float32")):
            if wide == torch.float32 and not (task.random or task.random_inputs):
                seen = self._of_some_rows(task, values, watched)
                if seen is not None:
                    return seen
            seen = self._in_type(task, values, wide, text, watched)
            if seen is not None:
                return seen
            self.free()  # here, and not while the failure is handled: its frames hold what the run had made
        return self._as_written(task, values, "neither float64 nor float32 fit: compared with eager", watched)

    def _in_type(
        self, task: Task, values: list[torch.Tensor], wide: torch.dtype, text: str, watched: Collection[int]
    ) -> Seen | None:
        """The whole in this type; as written where it has no such form, None where it does not fit."""
        needs = [i.requires_grad for i in task.region.inputs]
        started = time.perf_counter()
        try:
            expected = reference(task.built.module, values, needs, task.upstream, wide, watched)
            self.synchronize()
            return Seen(task, values, expected, text, took_s=time.perf_counter() - started)
        except torch.OutOfMemoryError:
            return None
        except NoReferenceError as fault:
            why = str(fault)
        return self._as_written(task, values, f"no float64 form ({why}): compared with eager", watched)

    def _as_written(self, task: Task, values: list[torch.Tensor], text: str, watched: Collection[int]) -> Seen:
        plain = as_call(task.built.module, task.region, task.upstream)
        given = [v.detach().clone().requires_grad_(v.requires_grad) for v in values]
        outputs = owned(plain(*given), task)
        written = changed(given, values, watched)
        outputs = (*outputs, *(given[n].detach() for n in written))
        return Seen(task, values, Reference(outputs, {}, "eager", written), text)

    def _of_some_rows(self, task: Task, values: list[torch.Tensor], watched: Collection[int]) -> Seen | None:
        """None where the region does not treat its rows by themselves."""
        if task.rows is None:
            task.rows = rows_of(task.region, dict(task.sizes), self.device) or False
        if not task.rows:
            return None
        elements = sum(v.numel() for v in values) + sum(o.numel() for o in task.built.outputs)
        return self._of_rows(task, values, task.rows, MOST_ELEMENTS * task.rows.count // elements, watched)

    def _of_rows(
        self, task: Task, values: list[torch.Tensor], rows: Rows, most: int, watched: Collection[int]
    ) -> Seen | None:
        """float64 of at most so many rows; None where it does not fit or has no such form."""
        numbers = rows.some(most, tensors.seed_of(self.seed, "rows"))
        some = of_rows(task, rows, numbers, self.device)
        needs = [i.requires_grad for i in task.region.inputs]
        taken = [
            take(v, dim, numbers).requires_grad_(grad) for v, dim, grad in zip(values, rows.inputs, needs, strict=True)
        ]
        expected: Reference | None = None
        with contextlib.suppress(torch.OutOfMemoryError, NoReferenceError):
            expected = reference(some.built.module, taken, needs, some.upstream, torch.float64, watched)
        if expected is None:
            self.free()
            return None
        text = f"float64 did not fit: compared on {len(numbers):,} of {rows.count:,} rows"
        return Seen(some, taken, expected, text, numbers, rows.outputs, rows.inputs)

    def against(self, seen: Seen, outputs: Sequence[torch.Tensor], left: Left | None = None) -> list[OutputError]:
        """The errors; by the room that roundings give them too, where rounding the result alone does not explain them.

        left: what the call left in the inputs that it changed, whose errors come behind the outputs'; None where the
        reference is of outputs alone.

        Rooms of all rows that would take longer than `WHOLE_ROOMS_S`, or do not fit, are made of some of the rows where
        the region treats them by themselves. Once rooms took `MOST_ROOMS_S` there are none: the cases go on.
        """
        expected, random = seen.expected, seen.random()
        picked = seen.of(outputs, left)
        results = [*outputs, *(left.get(n, seen.values[n]) for n in expected.written)] if left is not None else outputs
        errors = seen.with_the_rest(compare(picked, expected, random), results)
        if expected.precision == "eager" or random or not any(map(remarkable, errors)):
            return errors
        if self.rooms_s > MOST_ROOMS_S:
            self.note("no more rooms of roundings: they took too long")
            return errors
        started = time.perf_counter()
        try:
            whole_s = RUNS_OF_ROOMS * seen.took_s
            part = self._part(seen, WHOLE_ROOMS_S / whole_s) if whole_s > WHOLE_ROOMS_S else None
            given = self._rooms(part or seen)
            if given is None and part is None:
                part = self._part(seen, 1 / PART_IN_MEMORY)
                given = self._rooms(part) if part is not None else None
        finally:
            self.rooms_s += time.perf_counter() - started
        if given is None:
            return errors
        if part is None:
            return seen.with_the_rest(compare(picked, expected, random, given), results)
        return by_part(errors, compare(part.of(outputs, left), part.expected, random, given))

    def _part(self, seen: Seen, share: float) -> Seen | None:
        """Some rows of what all were held against; None where its rows cannot be looked at by themselves."""
        task = seen.task
        if seen.rows is not None or task.random:
            return None
        if task.few_rows is None:
            task.few_rows = rows_of(task.region, dict(task.sizes), self.device, FEW_ROWS) or False
        rows = task.few_rows
        most = int(share * rows.count) if rows else 0
        return self._of_rows(task, seen.values, rows, most, seen.expected.written) if rows else None

    def _rooms(self, seen: Seen) -> list[Room] | None:
        """None where they do not fit or there are none; what is wrong with them is noted."""
        task = seen.task
        needs = [i.requires_grad for i in task.region.inputs]
        seed = tensors.seed_of(self.seed, "roundings") % 2**32
        with contextlib.suppress(torch.OutOfMemoryError, NoReferenceError):
            try:
                return rooms(task.built.module, seen.values, needs, task.upstream, seen.expected, seed)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, TypeError, NotImplementedError, ValueError, IndexError, KeyError) as fault:
                self.note(f"no room of roundings: {type(fault).__name__}: {str(fault)[:200]}")
        self.free()  # here, where the failure's frames hold nothing any more
        return None

    def poison(self, task: Task) -> None:
        """Memory that the outputs are likely to get holds NaN: an element that is never written shows."""
        blocks = [
            tensors.poisoned(t.numel() * t.element_size(), self.device)
            for t in task.built.outputs
            for _ in range(2)
            if t.numel() * t.element_size() < max(self.memory_bytes, 2**26) / 8
        ]
        self.synchronize()
        del blocks

    def synchronize(self) -> None:
        """Wait for what the GPU has been given; nothing without one."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def free(self) -> None:
        """Give memory that no tensor holds back to the GPU."""
        if self.on_gpu:
            torch.cuda.empty_cache()

    def note(self, message: str) -> None:
        """Tell the parent what is being done."""
        self.channel.send(Note(message))


def by_part(errors: Sequence[OutputError], part: Sequence[OutputError]) -> list[OutputError]:
    """Errors of all rows with the room that some of them have. part: of these.

    What all are off by is held against it: a row that is wrong and not among them is as far beyond the room as it is
    beyond what they are off by. Which steps roundings lead to is known of these rows alone: where an output has steps
    and other rows differ from the reference, `InRoom.held` says of how many elements it is known.
    """
    return [
        whole if some.in_room is None else msgspec.structs.replace(whole, in_room=msgspec.structs.replace(
            some.in_room,
            error=_times(some.in_room.error, whole.error, some.error),
            row=_times(some.in_room.row, whole.row, some.row),
            outlier=_times(some.in_room.outlier, whole.outlier, some.outlier),
            held=some.elements if _others_on_steps(whole, some) else 0,
        ))
        for whole, some in zip(errors, part, strict=True)
    ]  # fmt: skip


def _times(room: float, whole: float, some: float) -> float:
    """The room's figure for the whole: as much larger as the whole is off by more than some of its rows."""
    if whole <= some:
        return room
    return room * whole / some if some > 0.0 and room > 0.0 else math.inf


def _others_on_steps(whole: OutputError, some: OutputError) -> bool:
    """Whether an output has steps, and more of its elements differ from the reference than some rows have."""
    if whole.kind == "index":  # its error is of the values it selects
        return whole.error != 0.0
    if whole.kind == "float" and whole.dtype not in BYTES:
        return False
    share, of_some = (whole.differ, some.differ) if whole.kind == "float" else (whole.error, some.error)
    return round(share * whole.elements) != round(of_some * some.elements)


def infinite(output: torch.Tensor) -> int:
    """How many elements are NaN or infinite."""
    return sum(int((~piece.isfinite()).sum()) for piece in tensors.pieces(output))


def check_threads(before: frozenset[int]) -> None:
    """Raises WrongOutputError where a call left a thread of its own running: its work may not be done."""
    if names := integrity.left_running(before):
        raise WrongOutputError(f"{LEFT_RUNNING}: {', '.join(names[:3])}")


def is_wrong(error: OutputError) -> bool:
    """More than rounding: of indices and whole numbers any difference; of random outputs nothing can be said."""
    return remarkable(error) if error.kind in ("float", "random") else error.error > 0


def is_the_same(outputs: Sequence[torch.Tensor], errors: Sequence[OutputError], former: Sequence[torch.Tensor]) -> bool:
    """Whether a wrong output is, bit for bit, what an earlier call returned."""
    return any(
        is_wrong(error) and tensors.same_bits(own, old)
        for own, error, old in zip(outputs, errors, former, strict=False)
    )


def worst(errors: Sequence[Sequence[OutputError]]) -> list[OutputError]:
    """Per output, the largest of each figure over several runs; statistics of the first."""
    return [
        msgspec.structs.replace(
            same[0],
            error=largest(e.error for e in same),
            outlier=largest(e.outlier for e in same),
            misfits=max(e.misfits for e in same),
            row=largest(e.row for e in same),
            slope=max((e.slope for e in same), key=abs),
            differ=max(e.differ for e in same),
            in_room=_widest(same),
        )
        for same in zip(*errors, strict=True)
    ]


def worst_case(made: Sequence[Case]) -> Case:
    """Several of one kind as one, with the largest figures of each output and of each input that is written into."""
    names = dict.fromkeys(name for case in made for name in case.written)
    written = {name: worst([[c.written[name]] for c in made if name in c.written])[0] for name in names}
    return msgspec.structs.replace(made[-1], outputs=worst([c.outputs for c in made]), written=written)


def _widest(same: Sequence[OutputError]) -> InRoom | None:
    """The largest of each figure, of those that have it: the others need none. None where it could not be had."""
    known = [e.in_room for e in same if e.in_room is not None]
    if not known or any(e.in_room is None and remarkable(e) for e in same):
        return None
    figures = ("error", "row", "outlier", "slope", "outside")
    held = min((r.held for r in known if r.held), default=0)
    return InRoom(**{name: largest(getattr(r, name) for r in known) for name in figures}, held=held)


def largest(values: Iterable[float]) -> float:
    """The maximum; NaN where one is NaN."""
    kept = list(values)
    return math.nan if any(map(math.isnan, kept)) else max(kept)
