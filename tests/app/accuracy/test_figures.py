"""The committed figures are today's, and do not fall."""

from __future__ import annotations

import dataclasses
import json
from copy import deepcopy
from typing import Any

import pytest

from app.accuracy import page, table
from app.accuracy.case import Case, cases
from app.accuracy.corpus.looks import load_development, load_looks
from app.accuracy.evaluation import evaluate, leave_one_out
from app.accuracy.figures import COMMITTED, figures, load_committed, meets, text_of, worse
from app.accuracy.question import answer, host_of, question
from app.archive import record_store
from app.cli import accuracy as accuracy_cli
from app.cli import corpus_accuracy
from app.estimate.rates import FITTED, Rates
from kernels.measure.model import STATUSES
from tests.conftest import ROOT

Json = dict[str, Any]


@pytest.fixture(scope="module")
def shipped() -> tuple[Case, ...]:
    return cases(record_store.records(record_store.FOLDER))


@pytest.fixture(scope="module")
def today() -> Json:
    """Recomputed with today's rule."""
    return accuracy_cli.compute_figures(
        record_store.records(record_store.FOLDER), json.loads(accuracy_cli.KERNELS.read_text())
    )


def test_the_advice_is_not_worse_than_committed(today: Json) -> None:
    assert worse(today, load_committed()) == []


def test_the_committed_figures_are_todays(today: Json) -> None:
    assert text_of(today) == COMMITTED.read_text(), "run `make bench-advice` and commit what it writes"


def test_the_page_in_docs_is_made_of_the_committed_figures() -> None:
    for name, text in page.files(load_committed(), load_looks(), load_development()).items():
        assert (ROOT / "docs" / name).read_text() == text, "run `make bench-advice` and commit what it writes"


def test_every_record_of_the_archive_is_scored_or_named(shipped: tuple[Case, ...]) -> None:
    held = load_committed()
    scored = [s["record"] for s in held["scores"]]
    assert len(set(scored)) == len(scored)
    assert {*scored, *held["unscored"]} == {c.record for c in shipped}
    assert {*scored, *held["unscored"], *held["alone"]} == {p.stem for p in record_store.FOLDER.glob("*.json")}
    assert len(held["unscored"]) + len(held["alone"]) <= len(scored) // 10


def test_totals_are_those_of_the_rows_shown() -> None:
    """Recomputed from the scores with nothing of the benchmark's own arithmetic."""
    held = load_committed()
    rows = [s for s in held["scores"] if s["column"] != "share"]
    product = 1.0
    for s in rows:
        product *= s["regret"]
    assert held["advice"]["all"]["regret_geomean"] == pytest.approx(product ** (1 / len(rows)), rel=1e-3)
    assert held["advice"]["all"]["regret_worst"] == max(s["regret"] for s in rows)
    assert held["advice"]["all"]["right"] == pytest.approx(sum(s["right"] for s in rows) / len(rows), rel=1e-3)
    known = [s for s in rows if s["predicted"] is not None]
    inside = [s for s in known if 0.8 <= s["predicted"] / s["measured"] <= 1.2]
    assert held["advice"]["all"]["within"] == pytest.approx(len(inside) / len(known), rel=1e-3)
    halves = [held["advice"][half]["cases"] for half in ("fit", "test")]
    assert sum(halves) == len(rows)


def test_regrets_are_those_of_the_records_files() -> None:
    """From the JSON files themselves: the counted candidate's time over the least."""
    by_id = {s["record"]: s for s in load_committed()["scores"] if s["by"] == "device time"}
    seen = 0
    for path in sorted(record_store.FOLDER.glob("*.json")):
        found = by_id.get(path.stem)
        if found is None:
            continue
        timed = {c["name"]: c["time_us"]["median"] for c in json.loads(path.read_text())["candidates"] if c["time_us"]}
        assert found["regret"] == pytest.approx(timed[found["counted"]] / min(timed.values()), rel=1e-4)
        assert found["best"] == min(timed, key=lambda name: timed[name])
        seen += 1
    assert seen == len(by_id) > 0


def test_a_fallen_figure_is_named_and_a_new_record_is_not_a_fall() -> None:
    held = load_committed()
    fallen = deepcopy(held)
    place = next(n for n, s in enumerate(fallen["scores"]) if s["right"] and s["column"] != "share")
    fallen["scores"][place] |= {"right": False, "regret": fallen["scores"][place]["regret"] * 1.5}
    said = worse(fallen, held)
    assert any(line.startswith("all, right: ") for line in said)
    assert any(line.startswith("all, regret_geomean: ") for line in said)
    assert worse(held, fallen) == []
    more = deepcopy(held)
    more["scores"].append({**fallen["scores"][place], "record": "new", "regret": 9.0})
    assert worse(more, held) == []


def test_write_refuses_figures_that_fell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    from app import cli

    fallen = deepcopy(load_committed())
    fallen["scores"] = [s | {"right": False} for s in fallen["scores"]]
    monkeypatch.setattr(accuracy_cli, "compute_figures", lambda *_, **__: fallen)
    monkeypatch.setattr(corpus_accuracy, "DOCS", tmp_path)
    before = COMMITTED.read_text()
    assert cli.main(["accuracy", "--write"]) == 2
    assert "right: 0 and was" in capsys.readouterr().err
    assert COMMITTED.read_text() == before and not list(tmp_path.iterdir())


def test_the_measured_times_do_not_reach_the_advice(shipped: tuple[Case, ...]) -> None:
    """The same record with other times is advised the same."""
    case = next(c for c in shipped if len(c.contenders) > 3)
    slower = dataclasses.replace(
        case.validation,
        candidates=tuple(
            dataclasses.replace(c, time_us=c.time_us and dataclasses.replace(c.time_us, median=n + 1.0))
            for n, c in enumerate(case.validation.candidates)
        ),
        best=None, advice_before=None, advice_after=None, outcome="tie", floor_us=None,
    )  # fmt: skip
    other = dataclasses.replace(case, validation=slower, contenders=())
    assert answer(question(other)) == answer(question(case))


def test_nothing_of_the_archive_is_read_for_the_advice(
    shipped: tuple[Case, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> Any:
        raise AssertionError("the advice looked into the Archive")

    for name in ("list_record_files", "records", "by_id", "nearest", "_read"):
        monkeypatch.setattr(record_store, name, forbidden)
    assert answer(question(shipped[0])).alternatives


def test_leave_one_out_never_fits_on_the_program_it_scores(shipped: tuple[Case, ...]) -> None:
    chosen = [next(c for c in shipped if c.name == name) for name in ("SwiGLU", "layout copy")]
    questions = [question(c) for c in chosen]
    fitted_on: list[set[str]] = []

    def fit(held: Any) -> Rates:
        fitted_on.append({c.program for c in held})
        halved = dataclasses.replace(FITTED.default, pointwise=FITTED.default.pointwise / 2)
        return dataclasses.replace(FITTED, default=halved)

    scores = leave_one_out(questions, fit)
    assert fitted_on == [{chosen[1].program}, {chosen[0].program}]
    assert [s.name for s in scores] == ["SwiGLU", "layout copy"]
    usual = {s.name: s for s in evaluate(questions)}
    slower = {n: p for n, p, _ in scores[0].calibration}["compile"]
    assert slower < 0.7 * {n: p for n, p, _ in usual["SwiGLU"].calibration}["compile"]  # the rates were used


def test_leave_one_out_is_published_beside_the_halves_where_there_is_a_fit() -> None:
    few = [r for r in record_store.records(record_store.FOLDER) if r["name"] in ("SwiGLU", "layout copy")]
    found = figures(few, None, fit=lambda _: FITTED)
    assert found["advice"]["leave-one-out"] == found["advice"]["all"]  # the shipped rates, for each
    assert "leave-one-out" in [row[0] for row in table.advice(found)]
    held = load_committed()["advice"]
    # By other rates an advice may name what was not measured: that case is then not counted.
    assert 0 <= held["all"]["cases"] - held["leave-one-out"]["cases"] <= 1
    assert held["leave-one-out"] != held["all"]  # other rates than the shipped ones scored them


def test_the_same_records_are_scored_by_their_peaks_too() -> None:
    """From the files: the counted candidate's peak over the least."""
    held = load_committed()
    by_id = {s["record"]: s for s in held["memory_scores"] if s["column"] != "share"}
    assert len(by_id) == held["columns"]["memory"]["cases"] > 0
    for name, found in by_id.items():
        body = json.loads((record_store.FOLDER / f"{name}.json").read_text())
        peaks = {c["name"]: c["peak_bytes"] for c in body["candidates"] if c["time_us"] and c["peak_bytes"]}
        assert found["by"] == "peak bytes"
        assert found["regret"] == pytest.approx(peaks[found["counted"]] / min(peaks.values()), rel=1e-4)


def test_a_package_is_on_the_records_host_only_where_a_call_of_it_was_tried(shipped: tuple[Case, ...]) -> None:
    case = next(c for c in shipped if c.candidate("library:liger_kernel.rms_norm"))

    def with_status(status: str) -> Case:
        candidates = tuple(
            dataclasses.replace(c, status=status) if c.name == "library:liger_kernel.rms_norm" else c
            for c in case.validation.candidates
        )
        return dataclasses.replace(case, validation=dataclasses.replace(case.validation, candidates=candidates))

    there = {status: "liger_kernel" in host_of(with_status(status)).packages for status in STATUSES}
    assert there["ok"] and there["mismatch"]
    assert not any(there[s] for s in ("not_installed", "unsupported", "not_run"))
    assert host_of(case).capability == (9, 0) and "torch" in host_of(case).packages


def test_every_policy_stands_in_the_table_on_the_same_regions() -> None:
    held = load_committed()
    ran = {
        r["id"]: {c["name"] for c in r["candidates"] if c["status"] == "ok"}
        for r in record_store.records(record_store.FOLDER)
    }
    # Where neither eager nor torch.compile could be run, nobody who follows one of these has a time.
    counted = sum(bool({"eager", "compile"} & ran[s["record"]]) for s in held["scores"] if s["column"] != "share")
    assert counted >= held["advice"]["all"]["cases"] - 2
    names = [row[0] for row in table.policies(held)]
    for policy in ("always eager", "always torch.compile", "always max-autotune", "always Triton"):
        assert policy in names
        assert held["policies"][policy]["all"]["cases"] == counted
    assert "published label" in names


@pytest.mark.parametrize(
    ("name", "value", "met"),
    [("regret_worst", 1.25, True), ("regret_worst", 1.26, False), ("right", 0.95, True), ("right", 0.94, False),
     ("within", None, None)],
)  # fmt: skip
def test_a_target_is_met_from_its_bound_on(name: str, value: float | None, met: bool | None) -> None:
    assert meets(name, value, {"regret_worst": 1.25}.get(name, 0.95)) is met


def test_claims_stand_next_to_what_the_recorded_kernels_show() -> None:
    found = {c["name"]: c for c in load_committed()["claims"]}
    shown = json.loads(accuracy_cli.KERNELS.read_text())["demonstrations_us"]
    tile = found["the tile: BLOCK_SIZE 4 against the best"]
    expected = shown["vector_add f32 n=2^26 BLOCK=4"] / shown["vector_add f32 n=2^26 BLOCK=1024"]
    assert tile["middle"] == pytest.approx(expected, rel=1e-3)
    assert tile["agrees"] is (abs(expected / 95 - 1) <= 0.2)
    example = found["the four-line example, fused"]
    assert all(f["value"] > 1 for f in example["figures"]) and example["figures"]
    assert example["agrees"] is (2 <= example["middle"] <= 4)
