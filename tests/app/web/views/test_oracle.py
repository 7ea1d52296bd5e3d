"""What the pages make of the oracle's answers: which kernel computes what, modes, words; rendered by the templates."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.analysis.reissue import find_kernel, kernel_keys
from app.web.templating import environment
from app.web.views import validation_page
from app.web.views.region import compiled_kernels, predicted_kernels
from app.web.views.region import region_page as views
from profiler.oracle import model
from profiler.oracle.compiler.findings import findings
from profiler.oracle.compiler.machine import Instruction, Machine, table
from profiler.oracle.model import Extern, OracleKernel, Prediction, Replaced
from profiler.oracle.serialization import from_dict, to_dict
from tests.app.samples import region

GEMM = [
    ("mm", "matmul", "gemm", 5), ("add", "add", "pointwise", 6), ("gelu", "gelu", "pointwise", 7),
    ("mul", "mul", "pointwise", 8),
]  # fmt: skip

TAIL = OracleKernel(
    "triton_poi_fused_add_gelu_mul_0", model.POINTWISE, 1, 1000, ("aten.add", "aten.gelu", "aten.mul"),
    "import triton\n<b>not markup</b>\n", lines=(6, 7, 8),
)  # fmt: skip
TEMPLATE = OracleKernel(
    "triton_tem_fused_mm_0", model.TEMPLATE, 1, 900, ("aten.mm", "aten.add", "aten.gelu", "aten.mul"), "x\n",
    lines=(5, 6, 7, 8),
)  # fmt: skip


def prediction(*kernels: OracleKernel, mode: str = "default", **more: Any) -> dict[str, Any]:
    made = Prediction("NVIDIA H200", mode, {}, False, kernels, how=model.WITHOUT_GPU, torch="2.13.0", **more)
    return to_dict(made)


def asked(operations: list[tuple[str, str, str, int]], *oracle: dict[str, Any]) -> dict[str, Any]:
    """A region of these operations (name, label, kind, line) with predictions."""
    answer = region("r")
    shape = answer["cost"]["operations"][0]
    rows = [{**shape, "name": n, "label": label, "kind": k, "line": at} for n, label, k, at in operations]
    return {**answer, "cost": {**answer["cost"], "operations": rows}, "oracle": list(oracle)}


def who(found: dict[str, Any]) -> dict[str, Any]:
    """Operation -> kernel numbers, or the library call's name."""
    rows = predicted_kernels.oracle_section(found)["rows"]
    return {name: row["library"] or [k["number"] for k in row["kernels"]] for name, row in rows.items()}


def test_the_former_spelling_of_a_stored_prediction_is_read_as_todays() -> None:
    stored = {**prediction(TAIL), "how": "asked of Inductor, without the GPU"}
    assert predicted_kernels.oracle_section(asked(GEMM, stored))["how"] == "from Inductor, without a GPU"
    assert from_dict(stored).how == "from Inductor, without a GPU"


def test_operations_are_in_the_kernel_of_their_lines_and_the_product_in_the_library() -> None:
    answer = asked(GEMM, prediction(TAIL, externs=(Extern("mm", 1),)))
    assert who(answer) == {"mm": "mm", "add": [1], "gelu": [1], "mul": [1]}
    assert who(asked(GEMM, prediction(TEMPLATE))) == {"mm": [1], "add": [1], "gelu": [1], "mul": [1]}


def test_a_bias_that_the_librarys_product_takes_along() -> None:
    tail = OracleKernel("triton_poi_fused_gelu_0", model.POINTWISE, 1, 1, ("aten.gelu",), "", lines=(7,))
    answer = asked(GEMM[:3], prediction(tail, externs=(Extern("addmm", 1),)))
    assert who(answer) == {"mm": "addmm", "add": "addmm", "gelu": [1]}


def test_attention_by_hand_goes_where_inductor_sends_it() -> None:
    operations = [
        ("bmm", "matmul", "gemm", 4), ("mul", "mul", "pointwise", 4), ("_softmax", "softmax", "softmax", 5),
        ("bmm_1", "matmul", "gemm", 6),
    ]  # fmt: skip
    call = "_scaled_dot_product_flash_attention"
    replaced = (Replaced(model.SDPA_REPLACED, "attention written by hand"),)
    answer = asked(operations, prediction(externs=(Extern(f"aten.{call}", 1),), replaced=replaced))
    assert set(who(answer).values()) == {"SDPA"}
    # Without the replacement nobody claims that an unexplained product is that call.
    assert who(asked(operations, prediction(externs=(Extern(f"aten.{call}", 1),))))["mul"] == []


def test_forward_and_backward_are_told_apart() -> None:
    forward = OracleKernel("triton_red_fused_mul_0", model.REDUCTION, 1, 1, ("aten.mul",), "a", lines=(3,))
    again = OracleKernel("triton_red_fused_mul_0", model.REDUCTION, 1, 1, ("aten.mul",), "b", "backward", (3,))
    other = OracleKernel("triton_per_fused_sum_1", model.PERSISTENT, 2, None, ("aten.sum",), "c", "backward", ())
    operations = [("mul", "mul", "pointwise", 3), ("mul_1", "mul", "pointwise", 0), ("sum_1", "sum", "reduction", 0)]
    answer = asked(operations, prediction(forward, again, other))
    assert who(answer) == {"mul": [1], "mul_1": [2], "sum_1": [3]}
    section = predicted_kernels.oracle_section(answer)
    assert [(s["name"], len(s["kernels"])) for s in section["modes"][0]["stages"]] == [("forward", 1), ("backward", 2)]
    keys = kernel_keys(answer["oracle"][0]["kernels"])
    assert keys == ["triton_red_fused_mul_0@forward", "triton_red_fused_mul_0@backward", "triton_per_fused_sum_1"]
    assert find_kernel(answer, "default", keys[1])[1]["source"] == "b"  # type: ignore[index]
    assert find_kernel(answer, "max-autotune", keys[1]) is None
    assert find_kernel(answer, "default", "triton_red_fused_mul_0") is None


def test_an_operation_that_nobody_computes_is_claimed_by_nobody() -> None:
    answer = asked([*GEMM, ("sub", "sub", "pointwise", 9)], prediction(TAIL, externs=(Extern("mm", 1),)))
    assert who(answer)["sub"] == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), ""),
        ((5,), "line 5"),
        ((5, 6), "lines 5, 6"),
        ((8, 6, 7), "lines 6 to 8"),
        ((1, 3, 4, 5), "lines 1 and 3 to 5"),
    ],
)
def test_lines_in_words(lines: tuple[int, ...], words: str) -> None:
    assert predicted_kernels.describe_lines(lines) == words


def page(found: dict[str, Any], **more: Any) -> str:
    context = {**views.analysis(found), "oracle_on": True, "machine_id": found.get("id"), **more}
    return environment().get_template("partials/region/analysis.html").render(**context)


def test_the_page_has_kernels_with_source_calls_and_what_was_assumed() -> None:
    autotuned = prediction(TEMPLATE, mode="max-autotune", assumed=("a template wins",))
    shown = page(asked(GEMM, prediction(TAIL, externs=(Extern("mm", 1),)), autotuned))
    assert "From Inductor, without a GPU." in shown
    assert TAIL.name in shown
    assert TEMPLATE.name in shown
    assert "lines 6 to 8" in shown
    assert "&lt;b&gt;not markup" in shown
    assert "A template wins." in shown
    assert "fusion rules" not in shown
    assert re.search(r'href="/regions/[^"]+/kernels/max-autotune/triton_tem_fused_mm_0"', shown)
    assert re.search(r'library, <code>mm</code>.*href="#k-default-1"', shown, re.S)


def test_the_same_kernels_in_both_modes_are_shown_once() -> None:
    both = [prediction(TAIL), prediction(TAIL, mode="max-autotune")]
    shown = page(asked(GEMM, *both))
    assert shown.count("Triton source</summary>") == 1
    assert "The same kernels and calls as default" in shown
    assert "The same kernels" not in page(asked(GEMM, both[0], prediction(TEMPLATE, mode="max-autotune")))


def test_without_a_prediction_the_fusion_rules_speak_and_the_reason_is_said() -> None:
    gone = asked(GEMM, prediction(unavailable="no answer within 2 s"))
    shown = page(gone)
    assert "The prediction is unavailable: no answer within 2 s." in shown
    assert "By its fusion rules" in shown
    assert "Ask again" in shown
    assert "Compiled into" not in shown
    unasked = page(asked(GEMM))
    assert 'hx-trigger="submit"' in unasked and "Inductor is being asked." in unasked
    assert "By its fusion rules" in unasked
    off = page(asked(GEMM), oracle_on=False, machine_id=None)
    assert "the oracle is off" in off
    assert "/oracle" not in off
    preview = page({k: v for k, v in gone.items() if k != "id"})
    assert 'hx-post="/region/oracle"' in preview
    assert 'action="/regions/' not in preview


def test_one_mode_without_an_answer_does_not_hide_the_other() -> None:
    shown = page(asked(GEMM, prediction(TAIL), prediction(mode="max-autotune", unavailable="it took too long")))
    assert TAIL.name in shown
    assert "No answer for max-autotune: it took too long." in shown


def test_recompiles_in_a_sentence() -> None:
    made = {
        "bindings": [{"N": 1}, {"N": 2}],
        "graphs": 2,
        "limit": 8,
        "gives_up": False,
        "because": "",
        "symbolic": None,
    }
    assert predicted_kernels.describe_recompiles(made) == "Over its 2 sizes torch.compile makes 2 graphs."
    assert "gives up" in predicted_kernels.describe_recompiles({**made, "graphs": 9, "gives_up": True})
    assert "it is N" in predicted_kernels.describe_recompiles({**made, "because": "it is N"})
    assert "with 1 launch." in predicted_kernels.describe_recompiles({**made, "symbolic": {"launches": 1}})
    assert predicted_kernels.describe_recompiles(None) == ""


# --- the machine

SOURCE = "import triton\n\n@triton.jit\ndef k(p):\n    x = tl.load(p)\n    tl.store(p, x + 1)\n"


def compiled(**change: Any) -> dict[str, Any]:
    """What `regions.kernel_machine` answers, for a kernel that was never compiled: its data are the model's own."""
    instructions = [
        Instruction(5, "LDG.E.128", "global load", 128), Instruction(5, "IADD3", "integer"),
        Instruction(6, "STG.E.64", "global store", 64), Instruction(0, "EXIT", "control"),
    ]  # fmt: skip
    lines = table(instructions, dict(enumerate(SOURCE.splitlines(), 1)))
    made = Machine(
        target="sm_90", kernel="k", num_warps=4, num_stages=1, block_warps=4, constants=(("XBLOCK", 128),),
        registers=32, stack_bytes=8, spill_bytes=8, spill_load_bytes=8, shared_bytes=0, blocks=16, occupancy=0.5,
        limited_by="registers", lines=lines, source=SOURCE, triton="3.7.1", texts={"ttir": "<ir>", "ptx": "ld\nst"},
    )  # fmt: skip
    decided = [{"subject": f.subject, "text": f.text, "lines": list(f.lines)} for f in findings(made)]
    return {
        "region_id": "r", "key": "k", "mode": "default", "device": "NVIDIA H200", "arch": "sm_90",
        "kernel": to_dict(Prediction("d", "m", {}, False, (TAIL,)))["kernels"][0], "findings": decided,
        "machine": made.to_dict() | change,
    }  # fmt: skip


def test_the_machines_numbers_findings_source_and_listings() -> None:
    context = compiled_kernels.machine_page(compiled())
    facts = {name: value for name, value, _ in context["facts"]}
    assert (facts["Registers a thread"], facts["Spilled"], facts["Occupancy"]) == ("32", "8 B", "50 %")
    assert (facts["Loads"], facts["Stores"], facts["Matrix instruction"]) == ("128 bits", "64 bits", "none")
    assert context["preamble"] == ["import triton", ""]
    rows = {row["number"]: row for row in context["source_lines"]}
    assert min(rows) == 3
    assert (rows[5]["total"], rows[5]["kinds"]) == (2, "1 global load of 128 bits, 1 integer")
    assert any("128 bits" in said for said in rows[5]["findings"])
    assert context["unplaced"] == 1
    assert [listing["name"] for listing in context["listings"]] == ["TTIR", "PTX"]
    shown = environment().get_template("partials/kernels/machine.html").render(**context)
    assert "&lt;ir&gt;" in shown
    assert "/regions/r/kernels/default/k/ptx.txt" in shown
    assert "XBLOCK=128" in shown


def test_a_long_listing_is_cut_on_the_page_and_says_so() -> None:
    text = "x" * (compiled_kernels.LONG_LISTING + 5)
    context = compiled_kernels.machine_page(compiled(texts={"sass": text}))
    assert len(context["listings"][0]["text"]) == compiled_kernels.LONG_LISTING
    assert context["listings"][0]["left"] == 5
    assert "without its last 5 characters" in environment().get_template("partials/kernels/machine.html").render(
        **context
    )


def test_what_the_targets_tools_do_not_tell_is_a_dash() -> None:
    change = {"registers": None, "spill_bytes": None, "occupancy": None, "blocks": None, "lines": []}
    facts = {name: value for name, value, _ in compiled_kernels.machine_page(compiled(**change))["facts"]}
    assert {facts[name] for name in ("Registers a thread", "Spilled", "Occupancy", "Loads")} == {"–"}


def test_what_was_compiled_for_real_stands_beside_the_answer() -> None:
    candidates = [
        {"name": "eager", "kernels": ["a", "b"]},
        {"name": "compile", "kernels": ["nvjet_sm90", "triton_poi_fused_gelu_0"]},
        {"name": "compile-max-autotune", "kernels": []},
    ]
    validation = {"device": "NVIDIA H200", "candidates": candidates}
    (row,) = validation_page.measured_compilations(validation)
    assert (row["mode"], row["launches"], row["generated"], row["library"]) == ("default", 2, 1, 1)
    assert validation_page.measured_compilations({**validation, "archived": {"match": "other-sizes"}}) == []
    assert validation_page.measured_compilations(None) == []
