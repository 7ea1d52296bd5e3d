"""What a trace's page notes: what went wrong, what comes first, what stands in torch.compile's way. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from app.objects.common import Note
from app.objects.obstacle import Obstacle
from app.web.views.trace.regions import AnyTrace

FEW = 5
"""Operations, and places in the code, that are named of one remedy."""


class BlockerRow(Obstacle):
    """What stands in torch.compile's way, with one remedy. ops, where: the first of them; calls: in words."""

    ops: list[str]
    more_ops: int
    where: list[str]
    total: float
    calls: str


def page_notes(trace: AnyTrace) -> list[Note]:
    """The trace's notes for its page: what went wrong, what comes before any kernel; no recipe printed twice."""
    notes = sorted(trace.get("notes") or (), key=lambda n: (n["level"] != "error", n["code"] != "gpu-idle"))
    nameless = any(n["code"] == "no-device" for n in notes)
    rows: list[Note] = []
    recipes: set[str] = set()
    for note in notes:
        if nameless and note["code"] == "remark":  # says for which GPU instead, as no-device does here
            continue
        words, code = _split_remedy(note.get("remedy") or "")
        if code in recipes:
            words, code = _refer_above(words), ""
        elif code:
            recipes.add(code)
        rows.append({**note, "remedy": f"{words}\n{code}" if words and code else words or code})
        if note["code"] == "no-device" and trace.get("estimates_for"):
            rows[-1]["message"] = (
                f"The trace does not name its GPU: floors and predictions are for {trace.get('estimates_for')}. If it "
                "was another, open a region and choose the GPU there."
            )
    return rows


def _refer_above(words: str) -> str:
    """A remedy's sentence whose code stands in an earlier note."""
    if words.endswith(":"):
        return f"{words[:-1]}, recorded as above."
    return f"{words} Record it as above." if words else ""


def _split_remedy(remedy: str) -> tuple[str, str]:
    """A remedy's sentence and its code; either may be ""."""
    if remedy.startswith(("from ", "import ")):
        return "", remedy.strip()
    words, _, code = remedy.partition("\n")
    return words, code.strip()


def blocker_rows(blockers: Iterable[Obstacle]) -> list[BlockerRow]:
    """What stands in torch.compile's way, one row a remedy: its operations, calls and places together."""
    rows: dict[tuple[str, str], BlockerRow] = {}
    for blocker in blockers:
        key = blocker["kind"], "" if blocker["kind"] == "custom-op" else blocker["remedy"]
        empty: BlockerRow = {**blocker, "ops": [], "more_ops": 0, "where": [], "total": 0.0, "calls": ""}
        row = rows.setdefault(key, empty)
        row["ops"].append(blocker["op"])
        row["total"] += blocker["calls_per_step"]
        row["where"] += [w for w in (blocker["sources"] or blocker["modules"]) if w not in row["where"]]
    for row in rows.values():
        row["title"] = row["title"][:1].upper() + row["title"][1:]
        row["operands"] = row["operands"][:2] if len(row["ops"]) == 1 else []
        row["more_ops"] = max(0, len(row["ops"]) - FEW)
        row["ops"], row["where"] = row["ops"][:FEW], row["where"][:FEW]
        row["calls"] = f"{row['total']:.3g}"
    return list(rows.values())
