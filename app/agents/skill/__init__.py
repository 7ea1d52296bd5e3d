"""The skill for coding agents: SKILL.md beside this file, printed or put where an agent looks for skills."""

from __future__ import annotations

from pathlib import Path

NAME = "tritonworthy"
FILE = Path(__file__).with_name("SKILL.md")


def skill_text() -> str:
    """SKILL.md, as it is installed."""
    return FILE.read_text(encoding="utf-8")


def install(skills: Path) -> Path:
    """Write the skill below a folder of skills, in the place of an older one; the file. Raises OSError."""
    place = skills / NAME / FILE.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(skill_text(), encoding="utf-8")
    return place
