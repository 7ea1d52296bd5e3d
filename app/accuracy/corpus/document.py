"""The thirds' sections of docs/accuracy.md and of the page: titles, sentences and tables, as data. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

from app.accuracy.corpus import tables, targets
from app.accuracy.table import Row, markdown, plain
from app.objects.corpus import CorpusFigures, DeviceFigures, Look, ThirdFigures

NO_LOOK = "Nobody has looked yet: there are no blind figures."
COMMAND = "tritonworthy accuracy blind"
WIDTH = 120
"""Of a line in docs."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what stands above it. words: its first columns, which are no numbers."""

    title: str
    rows: Sequence[Row]
    words: int = 1


@dataclass(frozen=True, slots=True)
class Section:
    """A title, a paragraph and tables."""

    title: str
    text: str
    tables: tuple[Table, ...] = ()


def blind(looks: Sequence[Look]) -> list[Section]:
    """What is known of the blind third: first what was asked for and every look, then each look, the newest first."""
    about = (
        "A third of the corpus, by a hash of each program's structure, is looked at by one command"
        f" (`{COMMAND}`), which puts the look on record before it shows a figure. None of its programs is named, and"
        " nothing may be chosen by its figures."
    )
    if not looks:
        return [Section("The blind third", f"{NO_LOOK} {about}")]
    newest = looks[-1]
    devices = newest["figures"][0]["devices"]
    first = Section(
        "The blind third",
        f"{about} {_count(len(looks))} on record; the targets are held against the newest, of {newest['date']}.",
        (
            Table("Targets, as advice is given", targets.rows(devices), words=2),
            *(Table(f"Policies on the {d['device']}'s programs", tables.policies(d)) for d in devices),
            Table("Every look, the newest first", tables.looks(looks, tables.OF_ADVICE), words=3),
            Table("Device times, at every look", tables.looks(looks, tables.OF_TIMES), words=3),
        ),
    )
    details = [
        section
        for look in reversed(looks)
        for figures in look["figures"]
        for section in _devices(figures, f"Look of {tables.name(look)}")
    ]
    return [first, *details]


def _count(looks: int) -> str:
    return "One look is" if looks == 1 else f"{looks} looks are"


def developed(development: ThirdFigures | None) -> list[Section]:
    """The development third: every way of predicting in one table, then advice as it is given in detail."""
    if development is None:
        return []
    text = (
        "Mechanisms were chosen while these programs were looked at, and no number was fitted on them: this is no blind"
        f" test. Written by `tritonworthy accuracy --corpus development --write` on {development['date']}. Every row"
        " counts those programs of which what it advises was measured: some are others than the next row's."
    )
    first = Section("The development third", text, tuple(_overview(development["figures"])))
    return [first, *_devices(development["figures"][0], "Development third")]


def _overview(figures: Sequence[CorpusFigures]) -> list[Table]:
    return [
        Table("", tables.overview(figures, tables.OF_ADVICE), words=2),
        Table("Device times", tables.overview(figures, tables.OF_TIMES), words=2),
    ]


def _devices(figures: CorpusFigures, name: str) -> list[Section]:
    return [_device(figures, device, name) for device in figures["devices"]]


def _device(figures: CorpusFigures, device: DeviceFigures, name: str) -> Section:
    return Section(
        f"{name}: {device['device']}, {figures['prediction']}",
        " ".join(sentences(figures, device)),
        (
            Table("Policies on the same programs", tables.policies(device)),
            Table("By family and mode", tables.groups(device, tables.OF_ADVICE)),
            Table("Device times by family and mode", tables.groups(device, tables.OF_TIMES)),
            Table("Programs that are left out, by figure", tables.left_out(device)),
        ),
    )


def sentences(figures: CorpusFigures, device: DeviceFigures) -> list[str]:
    """What was measured, by what it was predicted, and what to know of the counts."""
    dates = device["dates"]
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    said = [
        f"{device['measured']} of the third's {figures['programs']} programs were measured ({span}, torch"
        f" {', '.join(device['torch'])}).",
    ]
    if device["atlas"] is not None and not device["own"]:
        said.append(f"Predicted by the atlas of the {device['atlas']}, scaled.")
    said.append(f"{device['by_wall_time']} of {device['all']['cases']} are decided by wall time.")
    if device["next_runnable"]:
        said.append(
            f"Of {device['next_runnable']} the advised candidate was not measured and the next runnable one counts."
        )
    if device["unanswered"]:
        said.append(f"The oracle had no answer for {device['unanswered']}: rules took its place.")
    return said


def as_markdown(sections: Sequence[Section]) -> str:
    """The first as a chapter, those behind it below it."""
    parts = []
    for number, section in enumerate(sections):
        parts += [f"{'##' if number == 0 else '###'} {section.title}", fill(section.text, WIDTH)]
        for table in section.tables:
            parts += [f"**{table.title}**"] if table.title else []
            parts.append(markdown(table.rows))
    return "\n\n".join(parts)


def as_text(figures: CorpusFigures) -> str:
    """All tables of one way of predicting, for a shell."""
    parts = [f"{t.title}\n{plain(t.rows)}".strip() for t in _overview([figures])]
    for section in _devices(figures, f"{figures['third'].capitalize()} third"):
        parts += [section.title, section.text, *(f"{t.title}\n{plain(t.rows)}" for t in section.tables)]
    return "\n\n".join(parts)
