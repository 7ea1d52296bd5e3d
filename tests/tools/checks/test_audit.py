"""tools.checks.audit: what pip-audit says of what is installed, and what is said where it cannot be asked."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tools.checks import audit

HOLE = {"id": "PYSEC-2026-248", "aliases": ["CVE-2026-48710"], "fix_versions": ["1.3.0"], "description": "Host header"}


def answer(*holes: dict[str, Any], skipped: int = 0) -> str:
    """What pip-audit 2.10 prints with --format json, shortened."""
    packages: list[dict[str, Any]] = [
        {"name": "starlette", "version": "1.2.0", "vulns": list(holes)},
        {"name": "jinja2", "version": "3.1.6", "vulns": []},
    ]
    packages += [{"name": f"local{n}", "skip_reason": "not found on PyPI"} for n in range(skipped)]
    return json.dumps({"dependencies": packages, "fixes": []})


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, *more: str) -> tuple[int, str]:
    monkeypatch.setattr(audit, "ask", lambda service, timeout_s: text)
    return audit.main(more), capsys.readouterr().out


def test_a_known_hole_fails_the_audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(monkeypatch, capsys, answer(HOLE))
    assert status == 1
    assert "starlette 1.2.0: PYSEC-2026-248, mended in 1.3.0" in said
    assert run(monkeypatch, capsys, answer())[0] == 0


def test_what_is_accepted_is_left_out_and_may_not_outlive_its_hole() -> None:
    assert audit.read(answer(HOLE), {"CVE-2026-48710": "no Host is used"}).findings == ()
    assert audit.read(answer(), {"CVE-2026-48710": "no Host is used"}).findings == (
        "CVE-2026-48710 is accepted, and nothing installed has it",
    )


def test_what_the_service_does_not_know_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(monkeypatch, capsys, answer(skipped=2))
    assert status == 0
    assert "not audited: the service does not know local0, local1" in said
    assert "2 packages audited, 0 findings" in said


@pytest.mark.parametrize(
    "text", ["{}", '{"dependencies": [{"name": "x", "skip_reason": "no"}]}', '{"dependencies": 5}']
)
def test_an_answer_that_says_nothing_is_no_audit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    status, said = run(monkeypatch, capsys, text)
    assert status == 0
    assert said.startswith("not audited: ")
    assert run(monkeypatch, capsys, text, "--strict")[0] == 2


def test_without_a_network_it_says_that_nothing_was_audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real pip-audit, with a door that is shut in its way."""
    with socket.socket() as shut:
        shut.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{shut.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        status = audit.main(["--timeout", "2"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.startswith("not audited: ")
    assert len(said.splitlines()) == 1
