"""Tensors that a search along a step's data looks for, by what a trace says of them: sizes, type and layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler.region.mining.units import Sig, Unit

Layout = tuple[int, ...] | None
"""Strides of the dimensions that have more than one element; None where they are not known."""
Places = dict[Layout, list[int]]


class Values:
    """Looked up as `output_shapes.alike` compares, so that thousands of views cost a question no more than one does."""

    def __init__(self, sigs: Iterable[Sig] = ()) -> None:
        self._known: dict[tuple[int, ...], dict[str, Places]] = {}
        self._added = 0
        self.add(sigs)

    def add(self, sigs: Iterable[Sig]) -> None:
        """Puts tensors behind those that are there; a scalar looks like none."""
        for sig in sigs:
            if sig.dims:
                of_type = self._known.setdefault(sig.dims, {}).setdefault(sig.dtype, {})
                of_type.setdefault(_layout(sig), []).append(self._added)
                self._added += 1

    def read_by(self, unit: Unit) -> bool:
        """One of the unit's tensors looks like one of them."""
        return any(True for sig in _operands(unit) for _ in self._alike(sig))

    def has_sizes(self, dims: tuple[int, ...]) -> bool:
        """One of them has these sizes."""
        return any(places for of_type in self._known.get(dims, {}).values() for places in of_type.values())

    def take(self, unit: Unit) -> None:
        """Takes one away for every operand that looks like it: the latest."""
        for sig in _operands(unit):
            latest = max(self._alike(sig), key=lambda places: places[-1], default=None)
            if latest is not None:
                latest.pop()

    def _alike(self, operand: Sig) -> Iterator[list[int]]:
        """When those that look like the operand were added, by type (a list of tensors has none) and layout."""
        known = self._known.get(operand.dims, {})
        layout = _layout(operand)
        for of_type in known.values() if not operand.dtype else filter(None, (known.get(operand.dtype),)):
            layouts = of_type if layout is None else (layout, None)
            yield from (places for one in layouts if (places := of_type.get(one)))


def _layout(sig: Sig) -> Layout:
    return None if sig.strides is None else tuple(s for d, s in zip(sig.dims, sig.strides, strict=True) if d > 1)


def _operands(unit: Unit) -> list[Sig]:
    return [sig for a in unit.args if a.kind != "lost" for sig in a.sigs]
