"""The way from a model to the winner back in its place is open without a GPU; a record's claims hold with its
figures."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from app.advice.evidence import reissue_json  # noqa: E402 (torch is wanted, not required)
from app.advice.model import Range  # noqa: E402
from app.advice.rule import step_speedup  # noqa: E402
from benchmarks.validation import step, step_child  # noqa: E402
from benchmarks.validation.blocks import CASES  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tools.records.step_record import (  # noqa: E402
    CLOCKS,
    RECORD,
    choose_regions,
    claim_speedup,
    compare_claim,
    describe_pace,
    lines,
    model_of,
    winner_of,
)

NORM = """x: bf16[2, 16, 32]
w: bf16[32]
mean = x.to(f32).pow(2).mean(-1, keepdim=True)
y = x * rsqrt(mean + 1e-06).to(bf16) * w
return y
"""
ATTENTION = """q: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
k: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
bias: bf16[4, 16, 16]
v: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
p = softmax(q @ k.transpose(-2, -1) / 2.8284271247461903 + bias, dim=-1)
return p @ v
"""
SDPA = "library:torch.nn.functional.scaled_dot_product_attention"


def put_back(*winners, model="handrolled"):
    """What the child answers, in this process."""
    rows = [{"text": text, "candidate": candidate, "bindings": [{}]} for text, candidate in winners]
    task = {"model": model, "small": True, "device": "cpu", "rounds": 2, "calls": 1, "warm_ms": 0.1, "winners": rows}
    return step_child.place(task)


def test_the_way_is_open_from_the_trace_to_the_step_measured_again(tmp_path):
    target = tmp_path / "record.json"
    command = (
        "benchmarks/validation/step.py handrolled --device cpu --small --regions 1 --rounds 2 --calls 1 --out".split()
    )
    done = subprocess.run(
        [sys.executable, *command, str(target)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(target.read_text())
    assert (record["device"], record["dry"]) == (None, True)
    (model,) = record["models"]
    (region,) = model["regions"]
    assert (region["name"], region["part"], region["check"]["ok"]) == ("RMSNorm by hand", "norm", True)
    assert region["winner"] not in (None, "eager")
    assert region["wall"]["found"]["median"] > 0
    assert region["wall"]["claimed"] is None
    assert "none of its times says anything" in done.stdout


def test_winners_are_measured_alone_and_together():
    answer = put_back((NORM, "library:torch.nn.functional.rms_norm"), (ATTENTION, SDPA))
    assert [p["part"] for p in answer["placed"]] == ["norm", "attention"]
    assert set(answer["times"]) == set(answer["checks"]) == {"eager", "0", "1", "together"}
    assert all(c["ok"] for c in answer["checks"].values())


def test_a_winner_that_makes_the_model_wrong_is_not_timed(monkeypatch):
    def build(name, region, sizes, device):
        return lambda q, k, bias, v: (v * 1.0,)

    monkeypatch.setattr(step_child.registry, "build", build)
    answer = put_back((ATTENTION, "library:wrong"))
    assert not answer["checks"]["0"]["ok"]
    assert set(answer["times"]) == {"eager"}


def test_a_winner_that_raises_costs_itself_alone(monkeypatch):
    real = step_child.registry.build

    def build(name, region, sizes, device):
        def broken(*tensors):
            raise ValueError("broken here")

        return broken if name == "library:broken" else real(name, region, sizes, device)

    monkeypatch.setattr(step_child.registry, "build", build)
    answer = put_back((NORM, "library:broken"), (ATTENTION, SDPA))
    assert "broken here" in answer["checks"]["0"]["message"]
    assert set(answer["times"]) == {"eager", "1"}


def test_a_winner_that_cannot_be_built_or_has_no_part_says_so():
    answer = put_back((NORM, SDPA), (NORM.replace("1e-06", "1.0"), "eager"))
    assert answer["placed"][0]["why"]
    assert answer["placed"][1]["why"] == "no part computes it"
    assert set(answer["times"]) == {"eager"}


@pytest.mark.parametrize("share", [0.05, 0.5, 0.97])
def test_the_claim_is_the_products_own(share):
    ratio = {"median": 0.4, "low": 0.35, "high": 0.5}
    theirs = step_speedup(Range(1 / 0.5, 1 / 0.4, 1 / 0.35), share)
    ours = claim_speedup([share], [ratio])
    assert (ours["low"], ours["median"], ours["high"]) == pytest.approx((theirs.low, theirs.mid, theirs.high))


def test_regions_replaced_together_save_what_each_saves():
    half = {"median": 0.5, "low": 0.5, "high": 0.5}
    assert claim_speedup([0.4, 0.2], [half, half])["median"] == pytest.approx(1 / 0.7)


def test_the_winner_is_the_one_that_the_advice_is_reissued_for():
    """On the archived validations: both go by the same rule, each in its own way."""
    seen = 0
    for path in sorted((ROOT / "app" / "archive" / "records").glob("*.json")):
        body = json.loads(path.read_text())
        validation = {k: v for k, v in body.items() if k not in ("schema", "name", "advice_after")}
        if not validation.get("advice_before"):
            continue
        for share in (0.3, 0.011):
            advice = reissue_json(validation["advice_before"], validation, share)
            if advice["validation"]["outcome"] == "unmeasured" or "whatever" in advice["headline"]:
                continue
            name = winner_of(validation, share)
            if name is None:  # without eager's time there is no gain to claim
                assert not any(c["name"] == "eager" and c["time_us"] for c in validation["candidates"])
                continue
            tool = next(c["tool"] for c in validation["candidates"] if c["name"] == name)
            assert {"eager": "skip"}.get(tool, tool) == advice["tool"], path.name
            seen += 1
    assert seen > 4


def test_regions_that_save_most_are_replaced_first_and_what_is_left_is_not():
    def region(name, tool, mid, text="x: f32[4]\nreturn x * 2"):
        return {"name": name, "text": text, "advice": {"tool": tool, "step_speedup": mid and {"mid": mid}}}

    rows = [region("a", "compile", 1.1), region("b", "skip", 1.0), region("c", "library", 1.5),
            region("d", "compile", None), region("e", "compile", 1.2, None)]  # fmt: skip
    assert [r["name"] for r in choose_regions(rows, 3)] == ["c", "a", "d"]


def test_a_step_that_waits_for_the_host_is_said_to():
    def step(device_us, wall_us):
        return {"device_us": {"median": device_us}, "wall_us": {"median": wall_us}}

    assert describe_pace(step(1000.0, 1050.0)) == "the GPU sets the pace"
    assert describe_pace(step(360.0, 1000.0)) == "the host sets the pace: the GPU works 36% of the wall time"


def span(median):
    return {"median": median, "low": median, "high": median}


def row(number, share, ratio):
    by = {c: {"share": share, "claimed": claim_speedup([share], [span(ratio)])} for c in CLOCKS}
    return {"name": f"region {number}", "winner": "compile", "ratio": span(ratio), "placed_as": number, "why": "", **by}


def test_a_find_stands_beside_the_claim_of_its_own_region():
    """Half of a step at twice the speed, and a fifth at five times: 1/0.75, 1/0.84, both 1/0.59."""

    def times(us):
        return {"wall_us": span(us), "device_us": span(us), "wall_speedup": span(100 / us),
                "device_speedup": span(100 / us)}  # fmt: skip

    right = {"ok": True, "error": 0.01, "error_vs_eager": 1.0, "message": ""}
    placed = {
        "placed": [{"part": part, "missing_outputs": 0, "why": ""} for part in ("norm", "up")],
        "checks": dict.fromkeys(("eager", "0", "1", "together"), right), "conditions": {},
        "times": {"eager": times(100.0), "0": times(75.0), "1": times(90.0), "together": times(60.0)},
    }  # fmt: skip
    left = {"name": "left", "winner": "eager", "ratio": span(1.0), "placed_as": None, "why": "left as it is",
            **{c: {"share": 0.1, "claimed": span(1.0)} for c in CLOCKS}}  # fmt: skip
    model = model_of("handrolled", {}, [left, row(0, 0.5, 0.5), row(1, 0.2, 0.2)], placed)
    kept, first, second = model["regions"]
    assert kept["wall"]["found"] is None
    assert first["wall"]["difference"] == pytest.approx(0.0)
    assert second["wall"]["difference"] == pytest.approx(0.84 / 0.9 - 1)
    assert model["together"]["wall"]["claimed"]["median"] == pytest.approx(1 / 0.59)
    assert model["together"]["wall"]["difference"] == pytest.approx(0.59 / 0.6 - 1)
    table = "\n".join(lines({"models": [model], "dry": False, "device": "a GPU", "date": "", "software": {}}))
    assert "| region 1 | 20.0% | compile | 0.200 [0.200, 0.200] | 1.190 " in table
    assert "-6.7% |" in table


def test_a_region_claims_of_the_step_what_its_validation_measured(monkeypatch):
    """An archived validation of an H200 in the place of a new one."""
    path = next((ROOT / "app" / "archive" / "records").glob("rmsnorm-by-hand-nvidia-h200-*.json"))
    archived = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("schema", "name")}
    asked = []

    def validate_region(request, *, fork_server=None):
        asked.append(request)
        return archived

    monkeypatch.setattr("app.analysis.validate.validate_region", validate_region)
    region = {"name": "RMSNorm", "text": archived["region"], "calls_per_step": 4.0, "share_of_step": 0.2,
              "time_us_per_step": 800.0, "busy_us_per_step": 900.0, "shapes": [{"binding": {}, "calls": 4.0}],
              "advice": {"tool": "compile", "mode": "default", "step_speedup": None}}  # fmt: skip
    options = argparse.Namespace(device="cuda", budget=60.0, without=["compile-max-autotune"])
    answer = step.region_of(region, {"step_time_us": 4500.0, "gpu_busy_share": 0.5}, options, time.monotonic() + 100)
    ratio = next(c["ratio_to_eager"] for c in archived["candidates"] if c["name"] == answer["winner"])
    assert answer["winner"] != "eager"
    assert answer["wall"] == {"share": 0.2, "claimed": claim_speedup([0.2], [ratio])}
    assert answer["device"] == {"share": 0.4, "claimed": claim_speedup([0.4], [ratio])}
    (request,) = asked
    assert "compile-max-autotune" not in request["candidates"]
    assert request["share_of_step"] == 0.2
    late = step.region_of(region, {"step_time_us": 4500.0, "gpu_busy_share": 0.5}, options, time.monotonic())
    assert (late["winner"], late["why"]) == (None, "no time left to validate it")


# --------------------------------------------------------------------------------------------------------- the record


@pytest.fixture(scope="module")
def record():
    if not RECORD.exists():
        pytest.skip(f"no {RECORD.name} yet: benchmarks/validation/step.py --out {RECORD.relative_to(ROOT)}, on an H200")
    return json.loads(RECORD.read_text())


def regions(record):
    return [(model, region) for model in record["models"] for region in model["regions"]]


def test_the_record_is_of_an_h200_and_of_more_than_one_model(record):
    assert "H200" in record["device"]
    assert not record["dry"]
    assert record["software"]["torch"]
    with_found = {m["model"] for m, r in regions(record) if r["wall"]["found"] and r["wall"]["claimed"]}
    assert len(with_found) >= 2
    assert with_found <= set(CASES)


def test_every_recorded_claim_follows_from_its_share_and_its_ratio(record):
    for _, region in regions(record):
        for by in CLOCKS:
            if region["ratio"] is not None and region[by]["share"] is not None:
                assert region[by]["claimed"] == pytest.approx(claim_speedup([region[by]["share"]], [region["ratio"]]))


def test_every_recorded_find_is_eagers_step_over_the_replaced_one(record):
    for model, region in regions(record):
        for by in CLOCKS:
            if region[by]["found"] is None:
                continue
            eager, replaced = model["step"][f"{by}_us"]["median"], region["step_us"][by]["median"]
            assert region[by]["found"]["median"] == pytest.approx(eager / replaced)
            assert region[by]["difference"] == compare_claim(region[by]["claimed"], region[by]["found"])["difference"]


def test_every_recorded_winner_is_in_its_part_and_right_or_says_why_not(record):
    for _, region in regions(record):
        placed = region["wall"]["found"] is not None
        assert placed or region["why"] or not region["check"]["ok"]
        if placed:
            assert region["part"]
            assert region["check"]["ok"]
            assert region["winner"] in region["candidates"]


def test_a_recorded_step_has_the_kernels_of_its_trace(record, data):
    expected = json.loads((data / "traces" / "expected.json").read_text())
    for model in record["models"]:
        trace = expected[f"{CASES[model['model']].trace}.json.gz"]
        recorded = trace["kernels"] / max(1, trace["profiler_steps"])
        assert model["profiled"]["kernels"] / model["profiled"]["steps"] == pytest.approx(recorded, rel=0.02)


def test_the_record_can_be_shown(record):
    table = "\n".join(lines(record))
    assert all(model["model"] in table for model in record["models"])
