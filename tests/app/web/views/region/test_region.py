"""What templates get in addition to the API's objects: the notes, the tile of the saving, the choices of /compare."""

from __future__ import annotations

from typing import Any

from app.web.templating import environment
from app.web.views import trace_page, validation_page
from app.web.views.trace.notes import page_notes
from tests.app.samples import region

RECIPE = "from torch.profiler import profile\n\nwith profile():\n    step()\n"


def note(code: str, remedy: str = "") -> dict[str, str]:
    return {"code": code, "level": "warning", "message": code, "remedy": remedy}


def trace(*regions: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "t", "status": "ready", "step_time_us": 4000.0, "gpu_busy_share": 0.9, "kernel_time_us": 3600.0,
        "kernels": 1, "steps": 1, "profiler_steps": 1, "linked_share": 1.0, "device": None, "notes": [], "rests": [],
        "estimates_for": "NVIDIA H200", "regions": list(regions), **more,
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    return environment().get_template("partials/trace/body.html").render(**trace_page.trace_page(found))


def test_what_comes_before_any_kernel_is_said_first_and_a_recipe_once() -> None:
    notes = [note("no-ops", RECIPE), note("no-shapes", "Record shapes:\n" + RECIPE), note("gpu-idle", "wait less")]
    found = page_notes(trace(notes=notes))
    assert [n["code"] for n in found] == ["gpu-idle", "no-ops", "no-shapes"]
    assert [n["remedy"] for n in found] == ["wait less", RECIPE.strip(), "Record shapes, recorded as above."]
    assert notes[1]["remedy"].endswith(RECIPE), "the API's notes stay whole"


def test_a_trace_that_names_no_gpu_says_which_one_was_taken() -> None:
    shown = page_notes(trace(notes=[note("no-device")]))[0]["message"]
    assert "NVIDIA H200" in shown


def test_tile_and_rows_agree_where_no_time_can_be_predicted() -> None:
    known = region("GELU tail")
    timeless = {**known, "advice": {**known["advice"], "region_speedup": None, "step_speedup": None}}
    without = page(trace(timeless))
    assert "no times can be predicted" in without
    assert "by the rule, no times" in without
    assert '<span class="tag">predicted</span>' not in without
    assert '<span class="tag">predicted</span>' in page(trace(known))
    assert "1 kernel in the file" in without


def test_an_idle_gpu_that_never_works_promises_nothing() -> None:
    assert "faster kernels" not in page(trace(gpu_busy_share=0.0)).lower()


def test_compare_never_begins_with_one_validation_twice() -> None:
    options = [{"id": i, "label": i} for i in "xyz"]
    assert validation_page.select_options(options, "", "") == {"a": "x", "b": "y"}
    assert validation_page.select_options(options, "y", "") == {"a": "y", "b": "x"}
    assert validation_page.select_options(options, "", "x") == {"a": "y", "b": "x"}
    assert validation_page.select_options(options, "x", "x") == {"a": "x", "b": "x"}, "what was asked for is shown"
    assert validation_page.select_options(options[:1], "", "") == {"a": "x", "b": ""}
    assert validation_page.select_options([], "", "") == {"a": "", "b": ""}
