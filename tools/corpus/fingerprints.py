"""When two texts are one program, and when they are one structure at other sizes: as the accuracy's split tells."""

from __future__ import annotations

from app.accuracy.labels import key
from app.accuracy.split import program


def program_of(text: str) -> str:
    """Equal for texts that compute the same at the same sizes and layouts."""
    return key(text)


def structure_of(text: str) -> str:
    """Equal for texts that differ in sizes and layouts only."""
    return program(text)
