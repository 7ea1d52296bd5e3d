"""docs/rule.md is what the rule's code says, and says all of it."""

from __future__ import annotations

import re
import subprocess
import sys

from app.advice.criteria import CRITERIA
from app.thresholds import DEFAULTS
from tools.docs.rule_page import PAGE, main, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.rule_page"
    assert main(["--check"]) == 0


def section(text: str, name: str) -> str:
    return text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_every_criterion_has_its_meaning_its_source_and_its_end() -> None:
    text = page()
    for criterion in CRITERIA:
        found = section(text, criterion.name)
        assert (criterion.judge.__doc__ or "").splitlines()[0] in found
        assert re.search(r"^- From: \S.*\.$", found, re.M)
        assert len(re.findall(r"^- (Not terminal|Terminal): ", found, re.M)) == 1


def test_every_threshold_stands_with_default_unit_meaning_and_source() -> None:
    table = section(page(), "Thresholds")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{t.name}` | {t.default:g} | {t.unit} | {t.meaning} | {t.source} |" for t in DEFAULTS.described()
    ]


def test_the_decision_on_measured_times_stands_with_its_numbers() -> None:
    numbers = {
        "near_best": DEFAULTS.near_best,
        "tie": DEFAULTS.tie_margin,
        "triton_win": DEFAULTS.win_margin,
        "worth_of_step": DEFAULTS.worth_share,
    }
    listed = re.findall(r"(?m)^- `(\w+)` \((\S+)\)$", section(page(), "The measurement overrules"))
    assert listed == [(name, f"{number:g}") for name, number in numbers.items()]


def test_a_change_of_the_code_is_a_change_of_the_page(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import tools.docs.rule_page

    before = page()
    monkeypatch.setattr(tools.docs.rule_page, "DEFAULTS", DEFAULTS.from_mapping({"worth_share": 0.5}))
    assert tools.docs.rule_page.page() != before


def test_the_page_is_written_without_torch() -> None:
    code = "import sys; import tools.docs.rule_page as t; t.page(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=PAGE.parent.parent)
