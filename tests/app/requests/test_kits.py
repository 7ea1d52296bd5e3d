"""Kits over the web and from a shell."""

from __future__ import annotations

import html
import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from app import cli
from tests.app.web.conftest import Serving, serving

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
ALONE = "x: f32[2, 8, 16, 16]\nw: f32[8, 8, 3, 3]\nreturn F.conv2d(x, w)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("kits"), "hang") as app_server:
        yield app_server


def validation(server: Serving, text: str) -> str:
    """The id of a validation of this text, cancelled."""
    made = server.client.post("/api/v1/validations", json={"region": text})
    assert made.status_code == 202, made.text
    number = str(made.json()["id"])
    server.client.post(f"/api/v1/jobs/{number}/cancel")
    return number


def test_zip_and_page_differ(server: Serving) -> None:
    number = validation(server, REGION)
    answer = server.client.get(f"/api/v1/validations/{number}/kit.zip")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    assert 'filename="triton_generated.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(BytesIO(answer.content)) as held:
        files = {Path(n).name: held.read(n).decode() for n in held.namelist()}
    assert json.loads(files["validation.json"])["region"] == REGION
    page = server.client.get(f"/validations/{number}/kit")
    assert page.status_code == 200
    shown = html.unescape(page.text)
    for name, text in files.items():
        assert name in shown
        assert text.strip() in shown
    assert f"/api/v1/validations/{number}/kit.zip" in page.text
    twin = server.client.get(f"/validations/{number}/kit.json").json()
    assert twin["files"] == files


def test_what_has_no_kit(server: Serving) -> None:
    number = validation(server, REGION)
    api = server.client.get(f"/api/v1/validations/{number}/kit.zip", params={"candidate": "library:x"})
    assert (api.status_code, api.json()["code"]) == (422, "candidate-unknown")
    for path in ("/api/v1/validations/nope/kit.zip", "/validations/nope/kit", "/validations/nope/kit.json"):
        assert server.client.get(path).status_code == 404
    none = server.client.get(f"/validations/{validation(server, ALONE)}/kit")
    assert none.status_code == 200
    assert "no kernel in this kit" in none.text
    assert "replay.py" in none.text


def test_command_writes_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "region.txt").write_text(REGION)
    assert cli.main(["kit", "region.txt"]) == 0
    folder = tmp_path / "triton_generated"
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "helion_region.py", "replay.py", "triton_generated.py", "validation.json"
    ]  # fmt: skip
    assert cli.main(["kit", "region.txt", "--out", "kit.zip"]) == 0
    with zipfile.ZipFile("kit.zip") as held:
        for path in folder.iterdir():
            assert held.read(f"triton_generated/{path.name}").decode() == path.read_text()
    # What `validate --json` prints goes in as it is; so does the kit's own validation.json.
    assert cli.main(["kit", str(folder / "validation.json"), "--out", "again"]) == 0
    assert (tmp_path / "again" / "triton_generated.py").read_text() == (folder / "triton_generated.py").read_text()
    capsys.readouterr()
    assert cli.main(["kit", "region.txt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidate"] == "triton:generated"


@pytest.mark.parametrize(
    ("text", "more", "status", "said"),
    [
        (REGION, ["--candidate", "nonsense"], 1, "no such Triton kernel"),
        (REGION, ["--shapes", "[{]"], 1, ""),
        ("no region", [], 1, "line 1"),
        ('{"a": 1}', [], 1, "neither a region's text nor a validation"),
        (ALONE, [], 2, "no kernel"),
    ],
)
def test_what_the_command_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    text: str, more: list[Any], status: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text(text)
    assert cli.main(["kit", "file", *more]) == status
    assert said in capsys.readouterr().err
