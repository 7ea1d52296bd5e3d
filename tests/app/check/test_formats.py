"""Reports: each valid for its format's own validator, whatever a trace calls its kernels; the same words in all."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.check.config import OPTIONS, from_mapping
from app.check.formats import FORMATS
from app.check.formats.markdown import MAX_CHARS, code, fence, marker, to_markdown
from app.check.formats.places import place_of, relative
from app.check.formats.plain import to_text
from app.check.formats.sarif import ABOUT, escape, to_sarif
from app.check.judge import judge
from app.check.safe import visible, visible_block
from app.check.subject import Subject
from tests.app.check.hostile import NAMES
from tests.app.check.subjects import action, region, trace
from tests.app.check.validators import SCHEMAS, VALIDATORS, csv, html, io, junit, markdown, sarif, table

Json = dict[str, Any]

CONFIG = from_mapping(
    {
        "check": {"name": "nightly"},
        "assertions": {
            "compile": {"level": "error", "min_share": 0.05},
            "triton": "warn",
            "library": {"level": "error", "evidence": "measured"},
            "regression": "error",
            "gpu-idle": {"level": "warn", "max_share": 0.1},
            "cuda": "off",
        },
    }
)
BEFORE = trace(region("chain"), step_us=9_000.0, name="main.json")
REPORT = judge(CONFIG, [trace(region("chain"), region("norm", "triton"), region("att", "library"))], BEFORE)
EMPTY = judge(from_mapping({"assertions": {}}), [trace()])
BROKEN = judge(CONFIG, [Subject("step.json", "trace", error="cut off")])


def hostile(name: str) -> Json:
    """A report in which everything that comes from outside is this name."""
    part = region(name, "compile", key=name, source={"module": name, "line": f"{name}:7 {name}", "ops": []})
    part["advice"] |= {"headline": name, "action": name, "call": name, "mode": name}
    obstacle = {"kind": name, "title": name, "op": name, "does": name, "calls_per_step": 1.0, "modules": [name],
                "sources": [f"{name}:9 {name}"], "remedy": name}  # fmt: skip
    asserted = {"compile": "error", "compile:again": "warn", "obstacle": "warn", "step-option": "warn",
                f"triton:{name[:99] or 'x'}": "warn", "library:x": {"level": "error", "new_only": True}}  # fmt: skip
    config = from_mapping({"assertions": asserted})
    option = action(name, title=name, call=name, because=name, where={"module": name, "file": name, "line": 3})
    subject = trace(part, device=name, compile_obstacles=[obstacle], actions=[option], name=name)
    unread = Subject(name, "trace", error=name)
    return judge(config, [Subject(name, "trace", subject.body), unread], Subject(name, "trace", error=name))


def test_reports_for_people_begin_with_what_to_do_about_the_step_and_say_the_same() -> None:
    options = [action(f"a{rank}") for rank in range(7)]
    other = action("rather", 1_000.0, instead_of="a0")
    report = judge(CONFIG, [trace(region("chain"), actions=[*options, other])], BEFORE)
    words = "saves 2.00 ms (1.00 to 3.00) of a step, which then takes 8.00"
    for text in (to_markdown(report), FORMATS["html"].render(report), to_text(report)):
        places = [text.index(f"Do a{rank}") for rank in range(5)]
        assert places == sorted(places)
        assert text.count(words) >= 5
        assert places[4] < text.index(report["errors"][0]["message"]), "before the findings"
        assert "Do a5" not in text, "the first five"
        assert "Do rather" not in text, "it stands in another's place"
        assert "models/net.py:42" in text
    assert len(json.loads(FORMATS["json"].render(report))["subjects"][0]["actions"]) == 8


def test_a_check_that_an_older_version_kept_has_no_actions_and_is_shown() -> None:
    report = judge(CONFIG, [trace(region("chain"), actions=[action()])])
    for subject in report["subjects"]:
        del subject["actions"]  # type: ignore[misc]
    assert "What to do about" not in to_markdown(report)


@pytest.mark.parametrize("report", [REPORT, EMPTY, BROKEN], ids=["full", "empty", "broken"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_report_is_valid(name: str, report: Json) -> None:
    VALIDATORS[name](FORMATS[name].render(report))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("evil", NAMES, ids=range(len(NAMES)))
def test_a_report_of_hostile_names_is_valid(name: str, evil: str) -> None:
    text = FORMATS[name].render(hostile(evil))
    VALIDATORS[name](text)
    text.encode("utf-8")
    for character in "\u202e\u2066\u2028\u200b\x00\x07\x1b\x9b\ufeff":
        assert character not in text
    assert to_text(hostile(evil)).isprintable() or "\n" in to_text(hostile(evil))


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_a_report_of_any_names_is_valid(name: str) -> None:
    report = hostile(name)
    for kind in FORMATS:
        VALIDATORS[kind](FORMATS[kind].render(report))


def test_the_validators_notice() -> None:
    report = to_sarif(REPORT)
    with pytest.raises(Exception, match="is not"):
        sarif(report.replace('"level": "error"', '"level": "fatal"', 1))
    with pytest.raises(Exception, match=r"[aA]dditional"):
        sarif(report.replace('"columnKind"', '"columnSort"'))
    with pytest.raises(Exception, match=r"(Unexpected|reason)"):
        junit(FORMATS["junit"].render(REPORT).replace("<failure ", "<failed ").replace("</failure>", "</failed>"))
    with pytest.raises(AssertionError):
        table("a,b\r\n=1,2\r\n")
    with pytest.raises(AssertionError):
        markdown("a <img src=x> b\n")
    with pytest.raises(AssertionError):
        markdown("see <https://evil.test>\n")
    for wrong in ("<p><script>1</script>", "<p onclick=x>", "<p><b>"):
        with pytest.raises(Exception):  # noqa: B017, PT011 - html5lib's own, or ours
            html(FORMATS["html"].render(REPORT).replace("<main>", f"<main>{wrong}"))


def test_the_vendored_schemas_are_those_of_the_lock() -> None:
    lock = json.loads((SCHEMAS / "LOCK.json").read_text())
    assert {entry["file"] for entry in lock} == {p.name for p in SCHEMAS.iterdir()} - {"LOCK.json"}
    for entry in lock:
        assert hashlib.sha256((SCHEMAS / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]


# --------------------------------------------------------------------------------------------------------------- SARIF


def test_sarif_points_to_the_line_of_the_stack() -> None:
    result = sarif(to_sarif(REPORT))["runs"][0]["results"][0]
    physical = result["locations"][0]["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == ("models/net.py", 42)
    assert {"fullyQualifiedName": "Net/Block_0", "kind": "module"} in result["locations"][0]["logicalLocations"]
    assert (result["ruleId"], result["level"], result["baselineState"]) == ("compile", "error", "unchanged")


def fingerprints(*regions: Json, name: str = "step.json") -> list[str]:
    report = judge(from_mapping({"assertions": {"compile": "error"}}), [trace(*regions, name=name)])
    found = sarif(to_sarif(report))["runs"][0]["results"]
    return [r["partialFingerprints"]["primaryLocationLineHash"] for r in found]


def test_a_fingerprint_outlives_times_lines_shapes_and_the_traces_name() -> None:
    before = fingerprints(region("chain"))
    moved = {"module": "Net/Block_0", "line": "models/net.py:58 forward", "ops": []}
    after = region("chain", share=0.3, time_us_per_step=3000.0, key="chain-other-shapes", source=moved)
    assert fingerprints(after, name="other.json") == before
    assert fingerprints(region("other chain")) != before
    elsewhere = region("chain", source={"module": "Net/Block_1", "line": "models/net.py:42 forward", "ops": []})
    assert fingerprints(elsewhere) != before
    assert len(set(fingerprints(region("chain"), region("chain"), elsewhere))) == 3


def test_fingerprints_keep_to_their_findings_when_regions_and_times_change_places() -> None:
    """A trace lists regions by what they cost. Two of one name in one module are told apart by their lines."""

    def at(line: int, share: float, key: str) -> Json:
        source = {"module": "Net/Block_0", "line": f"models/net.py:{line} forward", "ops": []}
        return region("chain", share=share, key=key, source=source, time_us_per_step=share * 1e4)

    def by_line(*regions: Json) -> dict[int, str]:
        report = judge(from_mapping({"assertions": {"compile": "error"}}), [trace(*regions)])
        return {
            r["locations"][0]["physicalLocation"]["region"]["startLine"]: json.dumps(r["partialFingerprints"])
            for r in sarif(to_sarif(report))["runs"][0]["results"]
        }

    norm = region("norm", source={"module": "Net/Norm", "line": "models/net.py:7 forward", "ops": []})
    # With shapes of their own, and with the same.
    for one, two in (("a", "b"), ("b", "a"), ("a", "a")):
        before = by_line(at(9, 0.3, one), at(42, 0.2, two), norm)
        assert len(set(before.values())) == 3
        after = by_line({**norm, "share_of_step": 0.4}, at(42, 0.6, two), at(9, 0.1, one))
        assert after == before
    # Lines that move keep their order, and with it their alerts.
    moved = by_line(at(50, 0.6, "b"), at(17, 0.1, "a"))
    first = by_line(at(9, 0.3, "a"), at(42, 0.2, "b"))
    assert list(map(moved.get, (17, 50))) == list(map(first.get, (9, 42)))


def test_sarif_says_what_was_not_measured_without_a_result() -> None:
    run = sarif(to_sarif(BROKEN))["runs"][0]
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "cut off" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_every_kind_of_assertion_has_a_rule_in_words() -> None:
    everything = {name: {"level": "warn", "candidate": "x"} if name == "beats" else "warn" for name in OPTIONS}
    everything |= {"step-time": {"level": "warn", "max_us": 1}, "gpu-idle": {"level": "warn", "max_share": 0.5}}
    rules = sarif(to_sarif(judge(from_mapping({"assertions": everything}), [trace(region())])))["runs"][0]["tool"]
    assert {r["id"] for r in rules["driver"]["rules"]} == set(OPTIONS)
    assert set(ABOUT) <= {*OPTIONS, "kernel", "contract"}


def test_brackets_and_braces_are_neither_links_nor_placeholders_in_sarif() -> None:
    assert escape("[a](b) {0} \\") == "\\[a\\](b) {{0}} \\\\"


@pytest.mark.parametrize(
    ("source", "root", "wanted"),
    [
        ("models/bert.py:429 attention_mask", "", ("models/bert.py", 429, "attention_mask")),
        ("/home/ci/repo/models/bert.py:3 f", "/home/ci/repo", ("models/bert.py", 3, "f")),
        ("/home/ci/repo/models/bert.py:3 f", "/home/ci/repo/", ("models/bert.py", 3, "f")),
        ("/home/ci/repo2/bert.py:3 f", "/home/ci/repo", ("home/ci/repo2/bert.py", 3, "f")),
        ("C:\\ci\\net.py:3 f", "C:\\ci", ("net.py", 3, "f")),
        ("../../etc/passwd:1 x", "", ("etc/passwd", 1, "x")),
        ("a/../../b.py:0 x", "", ("b.py", 1, "x")),
        ("javascript:alert(1).py:7 f", "", ("javascript%3Aalert%281%29.py", 7, "f")),
        ("a b#c?.py:7", "", ("a%20b%23c%3F.py", 7, "")),
    ],
)
def test_places_are_relative_to_the_repository(source: str, root: str, wanted: tuple[str, int, str]) -> None:
    place = place_of(source, root)
    assert place is not None
    assert (place.uri, place.line, place.function) == wanted


def test_what_is_no_place_is_none() -> None:
    assert [place_of(s) for s in ("", "forward", "x:y z", ":3 f", "..:3 f")] == [None] * 5
    assert relative("..") == ""


# ------------------------------------------------------------------------------------------------------- other formats


def test_junit_fails_on_errors_only_and_skips_what_was_not_measured() -> None:
    (suite,) = junit(FORMATS["junit"].render(REPORT))
    cases = {case.name: [type(r).__name__ for r in case.result] for case in suite}
    failed, skipped = ["Failure"], ["Skipped"]
    assert cases == {"compile": failed, "triton": [], "library": skipped, "regression": failed, "gpu-idle": []}
    (broken,) = junit(FORMATS["junit"].render(BROKEN))
    assert (broken.failures, broken.errors, broken.skipped) == (0, 0, 1)


def test_csv_has_a_row_for_each_finding_and_each_assertion_that_holds() -> None:
    rows = table(FORMATS["csv"].render(REPORT))
    found = [(r["outcome"], r["assertion"], r["region"]) for r in rows]
    assert found == [
        ("error", "compile", "chain"), ("error", "regression", ""), ("warning", "triton", "norm"),
        ("warning", "gpu-idle", ""), ("unmeasured", "library", "att"), ("off", "cuda", ""),
    ]  # fmt: skip
    assert (rows[0]["share_of_step"], rows[0]["region_speedup_mid"], rows[0]["new"]) == ("0.1", "1.25", "false")


def test_a_negative_number_stays_a_number_in_csv() -> None:
    report = json.loads(json.dumps(REPORT))
    report["errors"][0]["share_of_step"] = -0.5
    assert next(csv.DictReader(io.StringIO(FORMATS["csv"].render(report))))["share_of_step"] == "-0.5"


def test_markdown_begins_with_the_marker_of_its_check() -> None:
    assert to_markdown(REPORT).splitlines()[0] == "<!-- tritonworthy-check:nightly -->"
    assert not to_markdown(hostile("<!-- tritonworthy-check:other -->")).startswith("<!-- tritonworthy-check:other")
    assert to_markdown(EMPTY).splitlines()[0] == "<!-- tritonworthy-check:tritonworthy -->"
    assert marker("a--> <b>--c") == "<!-- tritonworthy-check:a-b-c -->"


def test_markdown_has_a_table_with_what_each_finding_is_worth() -> None:
    tokens = markdown(to_markdown(REPORT))
    rows = [t.content for t in tokens if t.type == "inline"]
    assert {"10.0 %", "1.25 × (1.1 to 1.3)", "predicted"} <= set(rows)
    assert sum(t.type == "table_open" for t in tokens) == 2


def test_markdown_stays_below_what_a_comment_may_have() -> None:
    many = [region(f"chain {n}", call="x") for n in range(80)]
    for found in many:
        found["advice"] |= {"call": "x = 1\n" * 600, "headline": "y" * 400}
    text = to_markdown(judge(CONFIG, [trace(*many)]))
    assert len(text) <= MAX_CHARS
    assert "and 30 more" in text
    markdown(text)


def test_code_spans_hold_whatever_is_in_them() -> None:
    for text in NAMES:
        (paragraph,) = [t for t in markdown(f"x {code(text)} y\n") if t.type == "inline"]
        kinds = [child.type for child in paragraph.children or ()]
        assert kinds == ["text", "code_inline", "text"], text
        (block,) = [t for t in markdown(fence(text)) if t.type == "fence"]
        assert block.content.rstrip("\n") == visible_block(text)


def test_html_shows_every_finding_and_loads_nothing() -> None:
    text = FORMATS["html"].render(REPORT)
    tree = html(text)
    cells = [" ".join("".join(cell.itertext()).split()) for cell in tree.iter("td")]
    assert any("models/net.py:42" in cell for cell in cells)
    assert "http" not in re.sub("http-equiv", "", text)
    assert "default-src 'none'" in next(
        m.attrib["content"] for m in tree.iter("meta") if m.attrib.get("http-equiv") == "Content-Security-Policy"
    )


def test_what_does_not_show_is_shown_as_its_number() -> None:
    assert visible("a\u202eb\x00c\ud800") == "a\\u{202e}b\\u{0}c\\u{d800}"
    assert visible("a\n\tb   c") == "a b c"
    assert visible("µs × Ω 日本 ✅") == "µs × Ω 日本 ✅"
    assert len(visible("x" * 5000)) == 400
    assert visible_block("if x:\n\ty\u2028z") == "if x:\n    y\\u{2028}z"
