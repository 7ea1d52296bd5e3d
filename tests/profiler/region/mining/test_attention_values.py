"""Tensors that are looked up by sizes, type and layout, against a list of them that is compared one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profiler.region.mining.attention_flow import Values
from profiler.region.mining.output_shapes import alike, reads
from profiler.region.mining.units import Argument, Sig, Unit
from profiler.trace.model import NONE

LAYOUTS = {
    (): (None, ()),
    (2, 3): (None, (3, 1), (1, 2)),
    (1, 3): (None, (3, 1), (1, 1), (1, 2)),
    (6,): (None, (1,), (2,)),
}
SIGS = st.builds(
    lambda dtype, shape: Sig(dtype, *shape),
    st.sampled_from(("f32", "bool", "")),
    st.sampled_from([(dims, strides) for dims, known in LAYOUTS.items() for strides in known]),
)
UNITS = st.lists(st.tuples(st.sampled_from(("tensor", "tensors", "lost")), SIGS), max_size=3)
STEPS = st.lists(st.tuples(st.lists(SIGS, max_size=4), UNITS, st.booleans()), max_size=12)
"""In turn: tensors that are added, a unit that is asked about, and whether it takes what it reads."""


@given(STEPS)
def test_what_a_unit_reads_and_takes_is_what_a_list_says(
    steps: list[tuple[list[Sig], list[tuple[str, Sig]], bool]],
) -> None:
    values, listed = Values(), list[Sig]()
    for added, operands, taking in steps:
        values.add(added)
        listed += added
        unit = Unit(0, "f", True, 1, tuple(Argument(k, (s,)) for k, s in operands), NONE, NONE, 0.0, kernels=[0])
        assert values.read_by(unit) == reads(unit, listed)
        for dims in filter(None, LAYOUTS):
            assert values.has_sizes(dims) == any(s.dims == dims for s in listed)
        if taking:
            values.take(unit)
            for operand in (s for kind, s in operands if kind != "lost"):
                latest = next((i for i in reversed(range(len(listed))) if alike(operand, listed[i])), None)
                if latest is not None:
                    del listed[latest]
