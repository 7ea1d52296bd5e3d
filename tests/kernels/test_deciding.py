"""`deciding` of an operation: the arguments it takes out give the entries that the whole gives."""

from __future__ import annotations

import torch

from kernels.operations import operations
from kernels.spec import Case, Maker, Operation, outputs_of

OPERATIONS = [op for op in operations() if op.deciding is not None]


def small(op: Operation) -> list[Case]:
    """Its checks of the beyond case's mode, if it has any, with enough entries to take some out."""
    assert op.beyond is not None
    mode = op.beyond.get("mode")
    return [c for c in op.checks if c.get("mode") == mode and c.dtype != "f16" and not c.get("weights")]


def test_entries_taken_out_are_those_of_the_whole() -> None:
    seen = 0
    for op in OPERATIONS:
        assert op.deciding is not None
        for case in small(op):
            arguments = op.inputs(case, Maker(device="cpu", seed=5))
            whole = outputs_of(op.reference(*arguments))[0]
            long = whole.shape[0]
            for part in (slice(0, min(2, long)), slice(max(long - 2, 0), long)):
                if part.start == part.stop:
                    continue
                some = outputs_of(op.reference(*op.deciding(arguments, part)))[0]
                torch.testing.assert_close(some, whole[part], equal_nan=True, msg=f"{op.name} {case} {part}")
                seen += 1
    assert {op.name for op in OPERATIONS} >= {"embedding_bag_backward", "max_pool_backward", "segment_reduce"}
    assert seen > 4 * len(OPERATIONS)
