"""What an advice calls a library call: a function that exists, or words."""

from __future__ import annotations

import importlib

import torch
import torch.nn.functional as F

from app.advice import off_floor
from app.advice.case import VARIANTS, short
from app.advice.library_defaults import FUSED_OPTIMIZERS, TABLE
from app.trace_report.report import report
from kernels.libraries.catalogue import ENTRIES
from tests.profiler.trace.files import TRACES

NAMES = sorted({e.candidate for e in ENTRIES} | {f"library:{row[1]}" for row in TABLE.values()})


def there(name: str) -> bool:
    """Whether torch has a function or class of that name."""
    owner, _, last = name.rpartition(".")
    if owner == "F":
        return hasattr(F, last)
    try:
        return hasattr(importlib.import_module(owner), last)
    except ImportError:
        return False


def test_a_call_of_torch_is_one_that_torch_has_or_is_said_in_words() -> None:
    of_torch = [n for n in NAMES if n.startswith("library:torch.")]
    since = {e.candidate: e.feature for e in ENTRIES}
    assert len(of_torch) > 30
    for name in of_torch:
        said = short(name)
        newer = since.get(name) and not there(said)  # this torch is older than the call
        assert " " in said or newer or there(said) or said.startswith("torch.ops."), said
    assert torch.ops.aten.embedding_dense_backward


def test_every_variant_is_a_name_that_is_in_use() -> None:
    short_names = {n.removeprefix("library:").replace("torch.nn.functional.", "F.") for n in NAMES}
    made = {f"torch.optim.{own}" for own in FUSED_OPTIMIZERS} | {f"remedy.{mode}" for mode in off_floor.MODES}
    assert set(VARIANTS) <= short_names | made


def test_what_a_trace_does_not_record_is_said_once() -> None:
    trace_answer = report(TRACES / "llama_prefill_bf16_eager.json.gz", "llama")
    assumed = [r for r in trace_answer["regions"] if r["assumed"]]
    assert assumed
    for region in assumed:
        for text in region["assumed"]:
            said = [n for n in region["advice"]["notes"] if text in n]
            assert len(said) == 1
            assert said[0].count("record") == 1
