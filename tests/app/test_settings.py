"""Settings: documented, checked, and never printed with their values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import PREFIX, Settings, explain
from app.thresholds import Thresholds
from tests.conftest import ROOT

TOKEN = "0123456789abcdef-secret"


def test_every_setting_is_documented_with_its_default_and_no_other() -> None:
    rows = {}
    for line in (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"| `{PREFIX}"):
            name, default, meaning = (cell.strip() for cell in line.strip("|").split(" | "))
            rows[name.strip("` ")] = (default.strip("`"), meaning.rstrip(" |"))
    wanted = {}
    for name, field in Settings.model_fields.items():
        default = "unset" if field.default in (None, "") else str(field.default)
        wanted[PREFIX + name.upper()] = (default, field.description)
    assert rows == wanted


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITONWORTHY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TRITONWORTHY_PORT", "8123")
    settings = Settings()
    assert (settings.data_dir, settings.port) == (tmp_path, 8123)
    assert settings.url == f"sqlite:///{tmp_path / 'tritonworthy.db'}"


def test_thresholds_come_from_words_or_a_file(tmp_path: Path) -> None:
    assert Settings().rule == Thresholds()
    assert Settings(thresholds="worth_share=0.02").rule == Thresholds(worth_share=0.02)
    file = tmp_path / "rule.toml"
    file.write_text("# ours\nworth_share = 0.03\nwin_margin = 0.2\n")
    assert Settings(thresholds=str(file)).rule == Thresholds(worth_share=0.03, win_margin=0.2)
    for wrong in (str(tmp_path / "none.toml"), "worth=1", "worth_share=much", str(tmp_path)):
        with pytest.raises(ValidationError, match=r"name=value|no such threshold|no number"):
            Settings(thresholds=wrong)
    file.write_text("worth_share 0.03")
    with pytest.raises(ValidationError, match="not TOML"):
        Settings(thresholds=str(file))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_exposed_needs_a_token(host: str) -> None:
    with pytest.raises(ValidationError, match="TRITONWORTHY_TOKEN"):
        Settings(host=host)
    assert Settings(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_none(host: str) -> None:
    assert Settings(host=host).token is None


@pytest.mark.parametrize(("token", "accepted"), [("short", False), ("", True), ("x" * 16, True), ("ü" * 20, False)])
def test_tokens(token: str, accepted: bool) -> None:
    if accepted:
        found = Settings(token=token).token
        assert (found.get_secret_value() if found else "") == token
    else:
        with pytest.raises(ValidationError):
            Settings(token=token)


def test_hosts_never_include_a_wildcard_address() -> None:
    settings = Settings(host="0.0.0.0", token=TOKEN, allowed_hosts="GPU1.example.org, gpu2.example.org:8000,")
    assert "0.0.0.0" not in settings.hosts
    assert {"gpu1.example.org", "localhost", "127.0.0.1", "[::1]"} <= settings.hosts
    assert "[::1]" in Settings(host="::1").hosts


def test_an_explanation_names_the_variable_and_hides_the_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(port=99999, token="tooshort-secret")
    text = explain(caught.value)
    assert "TRITONWORTHY_PORT" in text
    assert "TRITONWORTHY_TOKEN" in text
    assert "tooshort" not in text


EMPTY = {
    "SHARED_DIR",
    "ARCHIVE_DIR",
    "ATLAS_DIR",
    "TOKEN",
    "ALLOWED_HOSTS",
    "DATABASE_URL",
    "THRESHOLDS",
    "RAY_TOKEN_FILE",
}


@pytest.mark.parametrize("name", [name.upper() for name in Settings.model_fields])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_variable_is_unset_or_an_error_with_a_remedy(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in [key for key in os.environ if key.startswith(PREFIX)]:
        monkeypatch.delenv(other)
    unset = Settings()
    monkeypatch.setenv(PREFIX + name, value)
    if name in EMPTY and not value:
        assert Settings() == unset
        return
    if name in EMPTY:
        return
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert explain(caught.value) == f"{PREFIX}{name}: it is empty: give it a value, or unset it for the default"


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e300", "-1"])
def test_no_time_is_endless_or_no_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [name for name, field in Settings.model_fields.items() if field.annotation is float]
    assert len(times) > 10
    for name in times:
        monkeypatch.setenv(PREFIX + name.upper(), value)
        with pytest.raises(ValidationError) as caught:
            Settings()
        monkeypatch.delenv(PREFIX + name.upper())
        assert explain(caught.value).startswith(f"{PREFIX}{name.upper()}: ")


def test_the_current_folder_is_no_data_folder() -> None:
    for folder in (Path(), Path("."), "."):
        with pytest.raises(ValidationError, match="name the folder"):
            Settings(data_dir=folder)
    for folder in ("/", "..", "./data", ".data"):
        assert Settings(data_dir=folder).data_dir == Path(folder)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"TRITONWORTHY_DATA_DIR": ""}, "TRITONWORTHY_DATA_DIR: it is empty: give it a value, or unset it"),
        ({"TRITONWORTHY_READ_TIMEOUT_S": "inf"}, "TRITONWORTHY_READ_TIMEOUT_S: "),
        ({"TRITONWORTHY_HOST": "0.0.0.0"}, "TRITONWORTHY_TOKEN"),
        ({"TRITONWORTHY_PORT": "http"}, "TRITONWORTHY_PORT"),
        ({"TRITONWORTHY_THRESHOLDS": "worth=0.02"}, "TRITONWORTHY_THRESHOLDS: no such threshold: worth; there are "),
        ({"TRITONWORTHY_DATA_DIR": "/dev/null/data"}, "data folder"),
        (
            {"TRITONWORTHY_DATABASE_URL": "mysql://u:hidden-word@h/n"},
            "TRITONWORTHY_DATABASE_URL: the database is SQLite",
        ),
        ({"TRITONWORTHY_DATABASE_URL": "postgresql://u:hidden-word@127.0.0.1:1/n"}, "u:***@127.0.0.1:1/n cannot be"),
    ],
)
def test_serve_refuses_with_status_2(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "serve"],
        env={k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        | {"TRITONWORTHY_DATA_DIR": str(tmp_path)}
        | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "hidden-word" not in ended.stderr
    assert "Traceback" not in ended.stderr
