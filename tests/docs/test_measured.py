"""docs/measured.md says what the records say, and the records bear out what the documents claim of them."""

from __future__ import annotations

import re
import statistics

import pytest

from app.trace_report.step_model import GRAPH_GAP_US
from benchmarks.validation.own_kernel import KEEP, REGIONS, TIMED, UNTIMED
from tools.docs import measured_page
from tools.docs.error_bounds import LIBRARIES, drawn
from tools.docs.generated_programs import by_family, larger_ratios
from tools.docs.measured_page import load


def test_the_page_is_what_the_records_say():
    assert measured_page.PAGE.read_text() == measured_page.page(), "python -m tools.docs.measured_page"


@pytest.mark.parametrize("name", ["RMSNorm by hand, 3 shapes", "GEMM, bias, GELU, mask"])
def test_progress_is_shown_at_once_and_warm_caches_pay(name):
    cold, *warm = load("verdicts")[name]
    assert warm
    for run in (cold, *warm):
        assert "H200" in run["device"]
        assert run["first_s"] < 1
        assert run["verdict_s"] >= sum(run["phases_s"].values())
        assert {status for status, _ in run["candidates"].values()} <= {"ok", "not_installed", "unsupported", "not_run"}
    assert all(run["verdict_s"] < cold["verdict_s"] for run in warm)


def test_cold_verdicts_keep_to_what_was_asked_for():
    def cold(case: str) -> list[float]:
        others = [r["verdict_s"] for r in record["other_hosts"] if (r["case"], r["kind"]) == (case, "cold")]
        return [record[case][0]["verdict_s"], *others]

    record = load("verdicts")
    # Compiling sets the pace, and hosts with the same GPU differ: 19.4 to 27.6 s.
    assert min(cold("RMSNorm by hand, 3 shapes")) < 20 and max(cold("RMSNorm by hand, 3 shapes")) < 30
    assert max(cold("GEMM, bias, GELU, mask")) < 60


def test_generated_pointwise_chains_are_within_three_per_cent_of_the_compiler():
    record = load("chains")
    chains = [r for r in record["times"] if r["case"].startswith("chain")]
    assert len(chains) >= 8
    for row in chains:
        assert row["bytes"] >= 256e6
        assert row["ratio"] == pytest.approx(row["generated_us"] / row["compile_us"], rel=0.02)
        assert row["ratio"] <= 1.03
        assert not row["wrong"]
    assert all(c["right"] == len(c["seeds"]) for c in record["checks"])


def test_a_landscapes_ratio_is_that_of_its_points():
    for one in load("landscapes"):
        times = [p["time_us"] for p in one["points"] if p["time_us"]]
        assert one["outcome"] == "measured"
        assert one["worst_to_best"] == pytest.approx(max(times) / min(times), rel=1e-3)
        assert one["worst_to_best"] > 5
        assert all(p["reason"] for p in one["points"] if p["status"] == "pruned")


def test_every_kit_passed_its_test_and_beat_eager_and_the_compiler():
    for kit in load("kits")["kits"].values():
        assert kit["test"] == "passed"
        assert kit["median_us"]["this kernel"] < min(kit["median_us"]["eager"], kit["median_us"]["torch.compile"])


def test_what_is_claimed_of_a_step_is_found_in_it():
    found = [r["wall"] for m in load("steps")["models"] for r in m["regions"] if r["wall"]["found"]]
    assert len(found) >= 3
    for wall in found:
        # 3.7 % where half the step is replaced: what is found is a little more than what is claimed
        assert wall["found"]["median"] == pytest.approx(wall["claimed"]["median"], rel=0.04)


def test_steps_are_found_as_they_were_predicted_by_what_was_asked_for():
    models = load("applied")["models"]
    off = {group: [measured_page.off_by(m) for m in models if m["group"] == group] for group in measured_page.GROUPS}
    within = {group: sum(abs(value) <= 0.15 for value in values) for group, values in off.items()}
    assert {group: len(values) for group, values in off.items()} == {"in-sample": 5, "not looked at": 5, "new": 19}
    assert within == {"in-sample": 5, "not looked at": 2, "new": 14}
    newest = [measured_page.off_by(m) for m in models if m.get("date") == "2026-11-27, third run"]
    assert len(newest) == 5 and sum(abs(value) <= 0.15 for value in newest) >= 4


def test_what_was_mended_after_a_run_is_told_beside_what_the_run_predicted():
    for model in load("applied")["models"]:
        if "mended_us" in model:
            assert abs(model["mended_us"]["mid"] / model["found_us"] - 1) < 0.15
        low, mid, high = (model["predicted_us"][end] for end in ("low", "mid", "high"))
        assert low <= mid <= high


def test_the_gap_of_a_graph_is_what_was_measured():
    short = [row for row in load("graph-gaps")["rows"] if row["kernel_us"] < 2]
    assert len(short) == 2
    for row in short:
        assert row["graph_us"] - row["kernel_us"] == pytest.approx(GRAPH_GAP_US, abs=0.05)


def test_three_hundred_generated_programs_are_right_and_no_family_is_slower_than_the_compiler_in_the_median():
    """No two the same. The host was in some times: the worse of two cards' ratios holds too, where both ran one."""
    record = load("new-operations")
    assert "H200" in record["device"]
    families = by_family(record)
    assert len(families) == 15
    assert len({p["text"] for programs in families.values() for p in programs}) >= 300
    for family, programs in families.items():
        assert {p["status"] for p in programs} == {"right"}, family
        assert statistics.median(p["ratio"] for p in programs) <= 1.1, family
    larger = larger_ratios(record, load("new-operations", "h100"))
    assert len(larger) == 11
    for family, ratios in larger.items():
        assert statistics.median(ratios) <= 1.1, family


def test_runs_of_generated_programs_have_a_date_and_their_software():
    for run in load("new-operations")["runs"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"])
        assert set(run["software"]) == {"torch", "triton"}
        assert run["programs"]


def test_every_kernel_of_a_users_has_the_verdict_that_it_was_written_for():
    record = load("own-kernel")
    assert "H200" in record["device"]
    assert record["regions"] == REGIONS
    expected = {**UNTIMED, **{name: told for name, (_, told) in TIMED.items()}}
    assert {r["function"]: r["exit_status"] for r in record["runs"]} == expected
    kept = next(r for r in record["runs"] if r["exit_status"] == KEEP)
    others = [t for n, t in kept["times_us"].items() if not n.startswith(("kernel:", "triton:"))]
    assert kept["times_us"][f"kernel:{kept['function']}"] < 0.5 * min(others)


JUDGED_WRONGLY = [("cross entropy f32", "quack")]
"""Its gradient of large logits is off by 1.8e-4 of the largest, 2.00 times what is allowed."""


def test_forty_right_ones_are_accepted_and_forty_wrong_ones_refused():
    record = load("bounds")
    rows = [r for r in record["rows"] if r["verdict"] != "not here"]
    assert "H200" in record["device"]
    assert sum(r["right"] for r in rows) >= 40
    assert sum(not r["right"] for r in rows) >= 40
    wrongly = [(r["region"], r["implementation"]) for r in rows if (r["verdict"] == "correct") != r["right"]]
    assert wrongly == JUDGED_WRONGLY
    assert record["not_run"] == []
    assert sum(r["implementation"] in LIBRARIES for r in rows) >= 20
    names = [(r["region"], r["implementation"]) for r in record["rows"]]
    assert len(set(names)) == len(names)
    assert not {tuple(name) for name in record["not_run"]} & set(names)


def test_two_thousand_drawn_programs_are_accepted_in_both_ways():
    record = load("bounds")
    assert drawn(record) >= 2000
    assert record["chains"]["computations"] == 2 * drawn(record)
    assert record["chains"]["refusals"] == []


def test_the_page_on_validation_has_the_h200s_figures():
    text = " ".join((measured_page.ROOT / "docs" / "validation.md").read_text(encoding="utf-8").split())
    record = load("bounds")
    rows = [r for r in record["rows"] if r["verdict"] != "not here"]
    right = sum(r["right"] for r in rows)
    wrong = len(rows) - right
    accepted = right - len(JUDGED_WRONGLY)
    own = sum(r["implementation"] in LIBRARIES for r in rows)
    assert f"accepted {accepted} of {right} right ones, {own} of them" in text
    assert f"refused {wrong} of {wrong} wrong ones" in text
    assert f"the first {drawn(record):,} programs in all {record['chains']['computations']:,} computations" in text


def test_what_was_advised_and_not_applied_stands_next_to_what_was():
    rows = {m["model"]: m for m in load("applied")["models"]}
    assert sum("listed" in m for m in rows.values()) >= 22
    for name in ("repvgg training", "factorization machine training", "regnet training"):
        assert rows[name]["listed"][0]["title"] == "Run the model in bf16"
        assert any("Run the model in bf16" in told for told in measured_page.not_applied(rows[name]))
    for row in rows.values():
        for advised in row.get("listed", ()):
            applied = advised["option"] in row["followed"]
            assert applied is not any(
                told.startswith(f"{advised['title']} (") for told in measured_page.not_applied(row)
            )
            assert applied or advised["adds_us"] is None or not advised["option"]
