"""Answers of the oracle as JSON: what is shown, what goes between processes, and what was kept before."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from profiler.oracle.model import CallSite, Extern, Operand, OracleKernel, Prediction
from profiler.oracle.serialization import from_dict, to_dict, to_message

A = Operand("bf16", (8, 4), (4, 1))
SITE = CallSite((A, A), (A,), ("self", "mat2"), (("alpha", 1.0), ("stride", (1, 2)), ("mask", None), ("causal", True)))
ANSWER = Prediction(
    "NVIDIA H200", "default", {"N": 3}, False,
    (OracleKernel("triton_poi_fused_0", "pointwise", 1, 64, ("aten.add",), "source", lines=(1, 2)),),
    (Extern("mm", 2, sites=(SITE, CallSite())), Extern("aten.topk", 1, "backward", (CallSite(constants=(("k", 3),)),))),
)  # fmt: skip


def test_operands_survive_between_processes() -> None:
    back = from_dict(json.loads(json.dumps(to_message(ANSWER))))
    assert back == ANSWER
    kinds = [type(value) for _, value in back.externs[0].sites[0].constants]
    assert kinds == [float, tuple, type(None), bool], "1.0 stays a float, True stays a truth value"


def test_infinite_constants_survive() -> None:
    site = CallSite(constants=(("fill_value", -math.inf),))
    answer = Prediction("d", "default", {}, False, externs=(Extern("aten.full", 1, sites=(site,)),))
    assert from_dict(json.loads(json.dumps(to_message(answer)))) == answer


def test_what_is_shown_has_no_operands() -> None:
    assert list(to_dict(ANSWER)["externs"]) == [
        {"name": "mm", "calls": 2, "stage": "forward"}, {"name": "aten.topk", "calls": 1, "stage": "backward"}
    ]  # fmt: skip
    assert set(to_dict(ANSWER)["kernels"][0]) == {
        "name", "kind", "calls", "bytes_moved", "operations", "source", "stage", "lines"
    }  # fmt: skip
    longer = Prediction("d", "m", {}, False, externs=(Extern("mm", 900, sites=(SITE,) * 900),))
    assert len(json.dumps(to_dict(longer))) < 1000


def test_answers_of_before_are_read_with_no_sites() -> None:
    before = to_dict(ANSWER)
    read = from_dict(json.loads(json.dumps(before)))
    assert [e.sites for e in read.externs] == [(), ()]
    assert read.signature == ANSWER.signature and to_dict(read) == before


def test_what_is_no_answer_is_refused() -> None:
    for damage in ({"externs": [{"name": "mm"}]}, {"externs": [{"name": "mm", "calls": 1, "sites": [{"inputs": 3}]}]}):
        with pytest.raises(msgspec.ValidationError):
            from_dict(to_message(ANSWER) | damage)
