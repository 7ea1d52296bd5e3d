"""Asks Inductor about what a contract names: a region's text, regions of a trace, or of a module's recorded step."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from app.analysis import service
from app.analysis.device_choice import choose_device
from app.analysis.generated_code import code_of
from app.check.config_error import ConfigError
from app.check.contracts.model import TEXT, Answer, Contract, Unanswered
from app.check.subject import Subject
from app.objects.obstacle import Effect
from app.objects.region import AnyRegion
from profiler.oracle.model import CallSite, Extern, Prediction
from profiler.oracle.process import Oracle, UnansweredError
from profiler.region import op_kinds
from profiler.region.language import trees
from profiler.region.language.text import parse, to_text
from profiler.region.model import FLOATING, ITEMSIZE, Region, RegionError

Said = Answer | Unanswered

NO_TRACE = "a pattern is on the regions of traces, and no trace was read"
PRODUCTS = frozenset({op_kinds.GEMM, op_kinds.CONVOLUTION, op_kinds.ATTENTION})
BREAK: Effect = "break"
"""Of what breaks torch.compile's graph, as a trace tells it."""


@dataclass(frozen=True, slots=True)
class Named:
    """A contract with its files read. text: of a region; "" for modules and patterns. file: of the region or module."""

    contract: Contract
    text: str = ""
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """A region to ask about. shapes: sizes in use, None for those of the text. calls: in a step. effects: of what stops
    torch.compile within it. file: of the text, place: where a trace has it from; "" where unknown."""

    of: str
    text: str
    shapes: Sequence[Mapping[str, float]] | None = None
    calls: int = 1
    effects: Sequence[Effect] = ()
    place: str = ""
    file: Path | None = None
    region_id: str | None = None


def named_contracts(contracts: Sequence[Contract], folder: Path | None) -> list[Named]:
    """Those that are not off, their files found below the folder. Raises ConfigError before anything is asked."""
    return [
        _named(contract, f"contracts.{number}", folder)
        for number, contract in enumerate(contracts, 1)
        if contract.level != "off"
    ]


def _named(contract: Contract, place: str, folder: Path | None) -> Named:
    if contract.pattern:
        return Named(contract)
    if contract.module:
        file, _, function = contract.module.rpartition(":")
        path = (folder or Path()) / file
        if not file.endswith(".py") or not function.isidentifier():
            raise ConfigError(f"{place}.module", f"FILE.py:FUNCTION is wanted, not {contract.module}")
        if not path.is_file():
            raise ConfigError(f"{place}.module", f"{file}: there is no such file")
        return Named(contract, file=Path(file))
    text, region_file = contract.region, None
    if contract.about != TEXT:
        region_file = Path(contract.region)
        try:
            text = ((folder or Path()) / region_file).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{place}.region", f"{region_file}: {error.strerror}") from None
        except ValueError:
            raise ConfigError(f"{place}.region", f"{region_file}: not UTF-8") from None
    try:
        parse(text)
    except RegionError as error:
        raise ConfigError(f"{place}.region", f"{region_file or 'the text'}: {error}") from None
    return Named(contract, text, region_file)


def ask(
    named: Named, oracle: Oracle, device: str | None, folder: Path | None, subjects: Sequence[Subject]
) -> list[Said]:
    """What is answered to a contract, a pattern's for each of its regions. device: the check's.

    subjects: what a pattern looks at.
    """
    contract = named.contract
    wanted = contract.device or device
    if contract.module:
        return [_ask_module(contract, oracle, wanted, folder)]
    if contract.pattern:
        return _ask_pattern(contract, oracle, device, subjects)
    of = named.file.stem if named.file else contract.name
    return [_ask(contract, oracle, wanted, _Source(of, named.text, file=named.file))]


def _ask_pattern(contract: Contract, oracle: Oracle, device: str | None, subjects: Sequence[Subject]) -> list[Said]:
    traces = [s for s in subjects if s.kind == "trace" and not s.error]
    if not traces:
        return [Unanswered(contract.pattern, NO_TRACE)]
    matching = [
        (trace, region)
        for trace in traces
        for region in trace.regions
        if any(fnmatchcase(str(region.get(key) or ""), contract.pattern) for key in ("name", "key"))
    ]
    if not matching:
        return [Unanswered(contract.pattern, f"no region of the trace is called {contract.pattern}")]
    names = Counter(region.get("name") for _, region in matching)
    said: list[Said] = []
    for trace, region in matching:
        source = _of_trace(region)
        if names[region.get("name")] > 1:
            source = replace(source, of=str(region.get("key") or source.of))
        if source.text:
            said.append(_ask(contract, oracle, contract.device or device or trace.body.get("device"), source))
        else:
            said.append(Unanswered(source.of, "the trace does not say enough to write this region down"))
    return said


def _of_trace(region: AnyRegion) -> _Source:
    shapes = [{**shape["binding"], "calls": shape["calls"]} for shape in region.get("shapes") or () if shape["binding"]]
    source = region.get("source")
    return _Source(
        str(region.get("name") or region.get("key") or "region"),
        region.get("text") or "",
        shapes or None,
        max(1, round(region.get("calls_per_step") or 1)),
        [blocker["effect"] for blocker in region.get("compile_obstacles") or ()],
        source["line"] if source else "",
        region_id=_id_of(region),
    )


def _id_of(region: AnyRegion) -> str | None:
    given = region.get("id")
    return given if isinstance(given, str) else None


def _ask_module(contract: Contract, oracle: Oracle, device: str | None, folder: Path | None) -> Said:
    """Of every region of its recorded step, together."""
    from app.program.service import predicted_trace
    from app.trace_report.report import report
    from profiler.program.model import ProgramError
    from profiler.program.request import Request
    from profiler.trace.errors import TraceError

    chosen, _ = choose_device(device, None)
    file, _, function = contract.module.rpartition(":")
    path = (folder or Path()) / file
    try:
        with predicted_trace(Request(f"{path}:{function}", bool(contract.training)), chosen) as trace:
            body = report(str(trace), contract.module)
    except (ProgramError, TraceError) as error:
        return Unanswered(contract.module, f"{error.message} {error.remedy}".strip())
    except OSError as error:
        return Unanswered(contract.module, f"{error.filename or file}: {error.strerror}")
    sources = [_of_trace(region) for region in body["regions"]]
    if not sources:
        return Unanswered(contract.module, "nothing of it runs on the GPU")
    if untold := [source.of for source in sources if not source.text]:
        return Unanswered(contract.module, f"these parts cannot be written down as a region: {', '.join(untold)}")
    answers = []
    for source in sources:
        answer = _ask(replace(contract, training=None), oracle, chosen.name, source)
        if isinstance(answer, Unanswered):
            return Unanswered(contract.module, f"{source.of}: {answer.reason}")
        answers += [answer] * source.calls
    return replace(
        _together(contract, answers, folder),
        graph_breaks=_seen_breaks([blocker["effect"] for blocker in body["compile_obstacles"]], answers),
        place=_definition(path, file, function),
    )


def _seen_breaks(effects: Sequence[Effect], answers: Sequence[Answer]) -> int | None:
    """None where nothing tells the forward of a step, in which alone they are looked for (`forward_calls.heavy`)."""
    return effects.count(BREAK) if effects or any(answer.has_product for answer in answers) else None


def _together(contract: Contract, answers: Sequence[Answer], folder: Path | None) -> Answer:
    first = answers[0]
    moved = [answer.bytes_moved for answer in answers]
    once = list(dict.fromkeys(answers))
    kernels, excess = 0, ""
    for answer in answers:
        kernels += answer.kernels
        if contract.max_kernels is not None and kernels > contract.max_kernels and not excess:
            excess = answer.place.removeprefix(f"{(folder or Path()).absolute()}/")
    return replace(
        first,
        of=contract.module,
        text="\n".join(answer.text for answer in answers),
        training=bool(contract.training),
        kernels=kernels,
        bytes_moved=None if None in moved else sum(m for m in moved if m is not None),
        minimum_bytes=sum(answer.minimum_bytes for answer in answers),
        externs=tuple(name for answer in answers for name in answer.externs),
        code="\n".join(f"# {answer.of}\n{answer.code}" for answer in once),
        excess_place=excess,
    )


def _ask(contract: Contract, oracle: Oracle, device: str | None, source: _Source) -> Said:
    """About one region."""
    try:
        region = _with_training(parse(source.text), contract.training)
        prepared = service.prepare_region(to_text(region), device=device, shapes=source.shapes)
    except RegionError as error:
        return Unanswered(source.of, str(error.message))
    prediction = oracle.predict(prepared.text, prepared.device, contract.mode, prepared.sizes or None)
    if prediction.unavailable:
        return Unanswered(source.of, prediction.unavailable)
    recompiled: int | None = None
    if contract.recompiles is not None:
        bindings = [dict(b.sizes) for b in prepared.workload.bindings if b.sizes]
        try:
            recompiled = (
                oracle.recompiles(prepared.text, prepared.device, bindings).recompiled if len(bindings) > 1 else 0
            )
        except UnansweredError as fault:
            return Unanswered(source.of, str(fault))
    places = _Places(source, prepared.text)
    return Answer(
        of=source.of,
        text=prepared.text,
        device=prediction.device,
        mode=prediction.mode,
        training=prediction.training,
        torch=prediction.torch,
        triton=prediction.triton,
        kernels=prediction.launches,
        bytes_moved=_bytes_moved(prediction),
        minimum_bytes=prepared.cost.ideal.bytes_moved,
        externs=tuple(e.name for e in prediction.externs for _ in range(e.calls)),
        graph_breaks=list(source.effects).count(BREAK),
        recompiles=recompiled,
        code=code_of(prediction),
        place=places.of_line(0),
        excess_place=places.of_line(_excess_line(prediction, contract.max_kernels)),
        region_id=source.region_id,
        has_product=not prepared.facts.kinds.isdisjoint(PRODUCTS),
    )


def _with_training(region: Region, training: bool | None) -> Region:
    """Its gradients taken out, or asked for of every floating input where it has none."""
    if training is None or training == region.requires_grad:
        return region
    inputs = tuple(replace(i, requires_grad=training and i.dtype in FLOATING) for i in region.inputs)
    return replace(region, inputs=inputs)


def _bytes_moved(prediction: Prediction) -> int | None:
    """Of the generated kernels by Inductor's count, and of library calls what they are given and give."""
    generated = prediction.bytes_moved
    called = [_extern_bytes(extern) for extern in prediction.externs]
    if generated is None or None in called:
        return None
    return generated + sum(moved for moved in called if moved is not None)


def _extern_bytes(extern: Extern) -> int | None:
    sites = [_site_bytes(site) for site in extern.sites]
    return None if len(sites) != extern.calls or None in sites else sum(moved for moved in sites if moved is not None)


def _site_bytes(site: CallSite) -> int | None:
    total = 0
    for operand in site.operands:
        if operand.dtype not in ITEMSIZE:
            return None
        elements = 1
        for size, stride in zip(operand.shape, operand.stride, strict=True):
            elements *= size if stride else 1
        total += elements * ITEMSIZE[operand.dtype]
    return total or None


def _excess_line(prediction: Prediction, most: int | None) -> int:
    """The line of the canonical text that the first kernel beyond `most` computes; 0 where there is none."""
    launched = 0
    for kernel in prediction.kernels:
        launched += kernel.calls
        if most is not None and launched > most:
            return kernel.lines[0] if kernel.lines else 0
    return 0


@dataclass(slots=True)
class _Places:
    """Lines of a region's canonical text as places: those of its file, which may have comments and other spacing."""

    source: _Source
    canonical: str
    lines: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.source.file is not None:
            self.lines = dict(_same_statements(self.canonical, self.source.text))

    def of_line(self, line: int) -> str:
        if self.source.file is None:
            return self.source.place
        before = [written for told, written in self.lines.items() if told <= line]
        return f"{self.source.file.as_posix()}:{max(before, default=min(self.lines.values(), default=1))}"


def _same_statements(canonical: str, text: str) -> Iterator[tuple[int, int]]:
    """(line in the canonical text, line in the text as it was written) of each statement."""
    told, written = (parse(one).nodes for one in (canonical, text))
    if len(told) == len(written):
        yield from ((one.lineno, other.lineno) for one, other in zip(told, written, strict=True))


def _definition(path: Path, file: str, function: str) -> str:
    """The line of a module's function in its file."""
    try:
        tree = trees.module(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return f"{file}:1"
    lines = [n.lineno for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == function]
    return f"{file}:{lines[0] if lines else 1} {function}"
