"""Watch: what is measured again after an upgrade, and which advice flipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.archive import record_store
from app.check.watch import judgement_json, line, plan, plan_json
from app.cli.ci import watch as watch_cli
from tests.app.cli.test_cli import isolated
from tests.conftest import ROOT

Json = dict[str, Any]

NORM = ROOT / "app" / "examples" / "rms_norm_by_hand.txt"
TEXT = NORM.read_text()
H200 = "NVIDIA H200"


def record() -> Json:
    nearest_record = record_store.nearest(TEXT, record_store.FOLDER, device=H200)
    assert nearest_record is not None
    return nearest_record


def now(**changed: str) -> dict[str, str]:
    return {**record()["software"], **changed}


def test_nothing_is_measured_again_without_an_upgrade() -> None:
    found = plan("norm", TEXT, record(), now(), H200)
    assert (found.action, found.changed) == ("unchanged", ())
    assert plan("norm", TEXT, record(), now(), H200, force=True).action == "validate"


@pytest.mark.parametrize("part", ["torch", "triton", "driver"])
def test_an_upgrade_is_a_reason_and_is_told(part: str) -> None:
    found = plan("norm", TEXT, record(), now(**{part: "99.1"}), H200)
    assert (found.action, found.changed) == ("validate", (part,))
    assert f"{part} {record()['software'][part]} is now 99.1" in found.because
    row = plan_json(found, now(**{part: "99.1"}))
    assert (row["was"][part], row["now"][part]) == (record()["software"][part], "99.1")


def test_a_version_that_is_not_known_is_no_upgrade() -> None:
    known = {k: v for k, v in now().items() if k != "driver"}
    assert plan("norm", TEXT, record(), known, H200).action == "unchanged"


def test_a_record_of_another_gpu_or_other_sizes_is_none() -> None:
    assert plan("norm", TEXT, record(), now(), "NVIDIA A100-SXM4-80GB").action == "no-record"
    assert plan("norm", TEXT, None, now(), H200).action == "no-record"
    other = record() | {"archived": {"match": "other-sizes"}}
    assert plan("norm", TEXT, other, now(torch="99"), H200).action == "no-record"


def advice(tool: str, mode: str = "default") -> Json:
    return {"tool": tool, "mode": mode, "headline": f"use {tool}"}


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (("compile", "default"), ("triton", "rms_norm"), "flipped"),
        (("compile", "default"), ("compile", "max-autotune"), "kept"),
        (("compile", "default"), ("compile", "reduce-overhead"), "flipped"),
        (("library", "a"), ("library", "b"), "flipped"),
        (("triton", "rms_norm"), ("triton", "rms_norm"), "kept"),
    ],
)
def test_advice_flips_with_its_tool_or_call(before: tuple[str, str], after: tuple[str, str], outcome: str) -> None:
    changed = now(torch="99.1")
    row = plan_json(plan("norm", TEXT, record(), changed, H200), changed)
    regression = judgement_json(row, record(), advice(*before), {**record(), "advice_after": advice(*after)})
    assert regression["outcome"] == outcome
    assert line(regression).startswith(f"{outcome}: norm: ")
    assert before[0] in line(regression) or outcome == "kept"


def test_a_measurement_that_failed_flips_nothing() -> None:
    changed = now(torch="99.1")
    row = plan_json(plan("norm", TEXT, record(), changed, H200), changed)
    regression = judgement_json(
        row, record(), advice("compile"), {"outcome": "unmeasured", "reason": "the GPU is in use"}
    )
    assert regression["outcome"] == "unmeasured"
    assert "the GPU is in use" in line(regression)


# ---------------------------------------------------------------------------------------------------- the command line


def host(monkeypatch: pytest.MonkeyPatch, gpu: str | None, **changed: str) -> None:
    monkeypatch.setattr(watch_cli, "_host", lambda: (gpu, now(**changed)))


def test_without_a_gpu_it_says_so_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host(monkeypatch, None, torch="99.1")
    assert cli.main(["watch", str(NORM)]) == 2
    captured = capsys.readouterr()
    assert "no GPU" in captured.err
    assert "to validate: rms_norm_by_hand" in captured.out
    assert cli.main(["watch", str(NORM), "--dry-run"]) == 0
    assert "torch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measured", "status"),
    [("same", 0), ("triton", 1), ("unmeasured", 2)],
)
def test_status_tells_whether_advice_flipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old measurement stands in for the new one, with one candidate made faster: the rule then decides."""
    from app.advice.evidence import reissue_json
    from app.analysis import validate
    from app.trace_report.by_record import measurement_in

    def again(request: Json, **_: Any) -> Json:
        if measured == "unmeasured":
            return {"outcome": "unmeasured", "reason": "this machine is not fit to measure"}
        body = json.loads(json.dumps(measurement_in(record())))
        body["software"]["torch"] = "99.1"
        if measured == "triton":
            (ours,) = [c for c in body["candidates"] if c["name"] == "triton:rms_norm"]
            for figures in (ours, *ours["shapes"]):
                for name in ("time_us", "ratio_to_eager", "ratio_to_best_other"):
                    figures[name] = {k: v / 10 for k, v in figures[name].items()}
                figures["wall_us"] /= 10
            body["best"] = "triton:rms_norm"
        return {**body, "advice_after": reissue_json(request["advice_before"], body)}

    host(monkeypatch, H200, torch="99.1")
    monkeypatch.setattr(validate, "validate_region", again)
    arguments = ["watch", str(NORM), "--json", "--record", "--folder", str(tmp_path)]
    assert cli.main(arguments) == status
    (row,) = json.loads(capsys.readouterr().out)["items"]
    assert row["outcome"] == {0: "kept", 1: "flipped", 2: "unmeasured"}[status]
    if status < 2:
        assert len(list(tmp_path.iterdir())) == 1
        # What was kept is the measurement of before from now on.
        assert cli.main(["watch", "--folder", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith("unchanged: rms_norm_by_hand")


def test_what_cannot_be_watched_is_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("x: f32[4]\ny = gleu(x)\nreturn y\n")
    for arguments in ([str(wrong)], [str(tmp_path / "none.txt")], ["--folder", str(tmp_path / "none")]):
        assert cli.main(["watch", *arguments]) == 3
        assert capsys.readouterr().err.startswith("nothing was done: ")
    with pytest.raises(SystemExit) as ended:
        cli.main(["watch", "--nope"])
    assert ended.value.code == 3


def test_a_region_without_a_record_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host(monkeypatch, H200)
    odd = tmp_path / "odd.txt"
    odd.write_text("x: f32[7, 13]\ny = sin(cos(tan(x)))\nreturn y\n")
    assert cli.main(["watch", str(odd)]) == 2
    assert "no record: odd" in capsys.readouterr().out


def test_watch_imports_no_web() -> None:
    done = isolated("watch", str(NORM), "--dry-run")
    assert done.returncode == 0, done.stderr


def test_a_real_run_on_a_host_without_a_gpu_could_not_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in a process of its own, over a record whose versions are not this host's: nothing is made up."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    before = {**record(), "software": {**record()["software"], "torch": "2.1.0", "driver": "1.0"}}
    path = tmp_path / "records" / "norm.json"
    path.parent.mkdir()
    path.write_text(json.dumps({k: v for k, v in before.items() if k not in ("archived", "elsewhere", "id")}))
    done = isolated("watch", "--folder", str(path.parent), "--json", "--record")
    assert done.returncode == 2, done.stderr
    assert "could not measure: this host has no GPU" in done.stderr
    (row,) = json.loads(done.stdout)["items"]
    assert (row["action"], row["outcome"], row["after"]) == ("validate", None, None)
    assert "torch" in row["changed"]
    assert [p.name for p in path.parent.iterdir()] == ["norm.json"], "nothing was recorded"


def test_every_shipped_record_can_be_watched_and_its_own_times_flip_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest record of each name stands in for a measurement under a torch to come; then its winner is lost."""
    from app.advice.evidence import reissue_json
    from app.analysis import validate
    from app.trace_report.by_record import measurement_in

    held = {
        r["region"]: r
        for r in record_store.records()
        if r["name"] in ("softmax", "RMSNorm by hand", "GEMM", "convolution")
    }
    for number, one in enumerate(held.values()):
        body = {k: v for k, v in one.items() if k not in ("archived", "elsewhere", "id")}
        (tmp_path / f"{number}.json").write_text(json.dumps(body))
    slower: list[float] = [1.0]

    def again(request: Json, **_: Any) -> Json:
        body = json.loads(json.dumps(measurement_in(held[request["region"]])))
        body["software"]["torch"] = "99.1"
        for candidate in body["candidates"]:
            if candidate["name"] == body["best"] and candidate["time_us"]:
                for figures in (candidate, *candidate["shapes"]):
                    for name in ("time_us", "ratio_to_eager", "ratio_to_best_other"):
                        figures[name] = figures[name] and {k: v * slower[0] for k, v in figures[name].items()}
        return {**body, "advice_after": reissue_json(request["advice_before"], body)}

    monkeypatch.setattr(watch_cli, "_host", lambda: (H200, now(torch="99.1")))
    monkeypatch.setattr(validate, "validate_region", again)

    def watched(status: int) -> list[Json]:
        assert cli.main(["watch", "--folder", str(tmp_path), "--json"]) == status
        rows: list[Json] = json.loads(capsys.readouterr().out)["items"]
        assert len(rows) == len(held)
        return rows

    assert {row["outcome"] for row in watched(0)} == {"kept"}
    slower[0] = 20.0
    flipped = [row for row in watched(1) if row["outcome"] == "flipped"]
    assert flipped
    for row in flipped:
        # What wins no longer is what lost its time: the advice goes to another tool or call.
        assert (row["before"]["tool"], row["before"]["mode"]) != (row["after"]["tool"], row["after"]["mode"])
