"""`tritonworthy archive`: what is kept, what is refused, and that nothing is lost."""

from __future__ import annotations

import argparse
import copy
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.archive import merging, record_store, schema
from app.settings import Settings
from tests.app.cli.test_cli import isolated
from tests.conftest import ROOT

Json = dict[str, Any]

SHIPPED = next(s.path for s in record_store.list_record_files() if "swiglu" in s.path.name)


def validation(torch: str = "2.11.0+cu130", **more: Any) -> Json:
    """A real validation, as `validate --json` prints it, of another torch and with another figure."""
    body: Json = json.loads(SHIPPED.read_text())
    body["software"] = {**body["software"], "torch": torch, "tritonworthy": "0.1.0"}
    return body | more


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    monkeypatch.setenv("TRITONWORTHY_ARCHIVE_DIR", str(folder))
    return folder


def written(path: Path, body: Any) -> str:
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return str(path)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Json:
    assert cli.main(["archive", *arguments, "--json"]) == status
    body: Json = json.loads(capsys.readouterr().out)
    return body


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else {}


# ------------------------------------------------------------------------------------------------------------- schema


@pytest.mark.parametrize("path", sorted(record_store.FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_every_shipped_record_validates(path: Path) -> None:
    body = schema.read(json.loads(path.read_text()))
    assert body["schema"] == schema.SCHEMA
    old = "schema" not in json.loads(path.read_text())
    assert schema.lacking(body) == (("tritonworthy",) if old else ())
    assert schema.require(body) is body


def spoil(body: Json, path: str, value: Any) -> Json:
    """A copy with the value at a dotted path changed."""
    changed = copy.deepcopy(body)
    *way, last = path.split(".")
    at: Any = changed
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("outcome", "perhaps", "none of"),
        ("candidates", [], "measured on a GPU"),
        ("device", None, "measured on a GPU"),
        ("date", "yesterday", "no day"),
        ("region", "x: bf17[2]\nreturn x\n", "region cannot be read"),
        ("schema", 99, "newer tritonworthy"),
        ("schema", 0, "never was"),
        ("schema", True, "never was"),
        ("colour", "blue", "colour"),
        ("candidates", {}, "$.candidates"),
        ("candidates.0.status", "splendid", "status"),
        ("candidates.0.shade", 1, "shade"),
        ("candidates.0.time_us.low", 1e9, "no interval"),
        ("candidates.0.time_us.median", "fast", "$.candidates[0].time_us.median"),
        ("candidates.0.shapes.0.binding", {"N": 3}, "not those of the region"),
        ("candidates.0.shapes.0.time_us.low", -1.0, "no interval"),
        ("candidates.1.name", "eager", "twice"),
        ("best", "nobody", "not timed"),
        ("software", {}, "version of torch"),
    ],
)
def test_what_is_wrong_is_refused_and_named(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, value: Any, said: str
) -> None:
    file = written(tmp_path / "v.json", spoil(validation(), path, value))
    assert cli.main(["archive", "record", file]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.splitlines()) >= 2  # a remedy
    assert files(mine) == {}


@pytest.mark.parametrize(
    "text", ["{", "[1, 2]", "{}", "null", '{"outcome": NaN}', "\x00\xff", "[" * 100_000, "no region"]
)
def test_what_is_no_validation_is_refused(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert cli.main(["archive", "record", written(tmp_path / "v.json", text)]) == 2
    assert "refused" in capsys.readouterr().err
    assert files(mine) == {}


def test_too_much_is_refused_before_it_is_parsed(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_BYTES", 1000)
    assert cli.main(["archive", "record", written(tmp_path / "v.json", validation())]) == 2
    assert files(mine) == {}


# ------------------------------------------------------------------------------------------------------------- record


def test_a_measurement_is_kept_whole_and_once(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = validation("2.12.0")
    api = body | {"id": "v" * 26, "state": "done", "created_at": "2026-11-21T06:34:12.123Z", "region_id": None}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(api).encode())))
    item = ask(capsys, "record", "-", "--name", "my SwiGLU")["items"][0]
    assert item["action"] == "beside"  # the shipped one is of an older torch
    kept = json.loads((mine / f"{item['id']}.json").read_text())
    assert kept == body | {"schema": schema.SCHEMA, "name": "my SwiGLU"}
    again = ask(capsys, "record", written(tmp_path / "v.json", body))["items"][0]
    assert (again["action"], again["id"]) == ("identical", item["id"])
    assert len(files(mine)) == 1


def test_what_can_be_taken_is_taken_though_another_cannot(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = written(tmp_path / "good.json", validation("2.12.0")), written(tmp_path / "bad.json", "{")
    answer = ask(capsys, "record", bad, good, str(tmp_path / "absent.json"), status=2)
    assert [i["source"] for i in answer["items"]] == [good]
    assert [r["source"] for r in answer["refused"]] == [bad, str(tmp_path / "absent.json")]
    assert all(r["remedy"] for r in answer["refused"])
    assert len(files(mine)) == 1


def test_a_shipped_record_is_not_copied(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "merge", str(record_store.FOLDER))
    assert {i["action"] for i in answer["items"]} == {"identical"}
    assert files(mine) == {}


def test_a_folder_that_cannot_be_written_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    file = written(tmp_path / "v.json", validation("2.12.0"))
    assert cli.main(["archive", "record", file, "--folder", str(blocked)]) == 2
    assert "--folder" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- merge


def test_a_newer_torch_replaces_nothing_unless_asked(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (written(tmp_path / f"{t}.json", validation(t)) for t in ("2.12.0", "2.13.0"))
    assert cli.main(["archive", "record", old]) == 0
    said = capsys.readouterr().out
    assert "conflict" in said and "2.11.0+cu130" in said and "--replace" not in said  # the shipped one stays anyway
    before = files(mine)
    assert cli.main(["archive", "merge", new]) == 0
    said = capsys.readouterr().out
    assert "conflict" in said and "2.12.0" in said and "2.13.0" in said and "--replace" in said
    assert before.items() < files(mine).items()
    third = written(tmp_path / "third.json", validation("2.11.1"))
    item = ask(capsys, "merge", third, "--replace")["items"][0]
    assert item["action"] == "replaced"
    assert {o["torch"] for o in item["others"]} == {"2.12.0", "2.13.0"}
    assert [json.loads(b)["software"]["torch"] for b in files(mine).values()] == ["2.11.1"]
    assert SHIPPED.exists()


def test_records_of_one_merge_do_not_replace_each_other(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    for torch in ("2.12.0", "2.13.0"):
        record_store.record(validation(torch), "SwiGLU", other)
    record_store.record(validation("2.10.0"), "SwiGLU", mine)
    (other / "notes.json").write_text("{}")
    (other / "readme.txt").write_text("not a record")
    answer = ask(capsys, "merge", str(other), "--replace", status=2)
    assert sorted(i["action"] for i in answer["items"]) == ["beside", "replaced"]
    assert [Path(r["source"]).name for r in answer["refused"]] == ["notes.json"]
    assert {json.loads(b)["software"]["torch"] for b in files(mine).values()} == {"2.12.0", "2.13.0"}


@pytest.mark.parametrize("more", [[], ["--replace"]])
def test_a_dry_run_says_the_same_and_does_nothing(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    record_store.record(validation("2.12.0"), "SwiGLU", mine)
    before, file = files(mine), written(tmp_path / "v.json", validation("2.13.0"))
    would = ask(capsys, "merge", file, "--dry-run", *more)
    assert files(mine) == before
    assert ask(capsys, "merge", file, *more)["items"] == would["items"]
    assert files(mine) != before


def test_another_size_device_or_candidate_is_another_subject(mine: Path) -> None:
    body = schema.read(validation("2.12.0"))
    changes = [
        {"device": "NVIDIA H100"},
        {"candidates": body["candidates"][:-1]},
        {"region": body["region"].replace("8192", "4096")},
    ]
    record_store.write(body, mine)
    steps = merging.plan([("f", {**body, **c}) for c in changes], record_store.list_record_files(mine), replace=True)
    assert [s.action for s in steps] == ["added"] * 3


# ------------------------------------------------------------------------------------------------------ list and show


ALL = -1


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ((), ALL), (("--device", "h200"), ALL), (("--device", "H100"), 0), (("--region", "swiglu"), 2),
        (("--region", "silu(gate)"), 1), (("--outcome", "overturned"), None), (("--outcome", "tie"), None),
    ],
)  # fmt: skip
def test_list_filters(
    mine: Path, capsys: pytest.CaptureFixture[str], filters: tuple[str, ...], count: int | None
) -> None:
    found = ask(capsys, "list", *filters)["items"]
    everything = [json.loads(p.read_text()) for p in record_store.FOLDER.glob("*.json")]
    if filters[:1] == ("--outcome",):
        count = sum(r["outcome"] == filters[1] for r in everything)
    assert len(found) == (len(everything) if count == ALL else count)


def test_list_shows_mine_beside_the_shipped_and_survives_a_broken_file(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_store.record(validation("2.12.0"), "mine \x1b[31m", mine)
    (mine / "broken.json").write_text("{")
    assert cli.main(["archive", "list", "--region", "silu"]) == 0
    shown = capsys.readouterr()
    assert "2.12.0" in shown.out and "2.11.0+cu130" in shown.out and "8192×14336" in shown.out
    assert "broken.json" in shown.err and "\x1b" not in shown.out
    assert (mine / "broken.json").exists()


def test_show_has_the_whole_record(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    varying = next(
        r for r in record_store.records() if "N: sizes" in r["region"] and "tritonworthy" not in r["software"]
    )
    assert cli.main(["archive", "show", varying["id"][-8:]]) == 0
    text = capsys.readouterr().out
    for line in varying["region"].splitlines():
        assert line in text
    for part in (
        "driver 580.159.04",
        "1980 MHz",
        "N=8192",
        varying["reason"],
        "× the best other",
        "not told   tritonworthy",
    ):
        assert part in text
    assert all(f"\n{c['name']}: {c['status']}" in text for c in varying["candidates"])
    assert ask(capsys, "show", varying["id"])["candidates"] == varying["candidates"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nobody"], "archive list"), (["GEMM"], "Take more of the id"), ([], "NAME"), (["x", "--torch", "2"], "--near"),
     (["x", "--folder", "/nowhere"], "no such folder")],
)  # fmt: skip
def test_show_says_what_to_do(mine: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.main(["archive", "show", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_record_of_the_hosts_torch_is_shown_else_of_the_newest(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for torch in ("2.12.0", "2.13.0"):
        record_store.record(validation(torch), "SwiGLU", mine)
    region = written(tmp_path / "r.txt", validation()["region"])
    cases = (
        ("2.12.0", "2.12.0", "the host's version"),
        ("2.12.0+cpu", "2.12.0", "the host's release"),
        ("2.14.0", "2.13.0", "the newest"),
    )
    for asked, chosen, why in cases:
        told = ask(capsys, "show", "--near", region, "--torch", asked)["elsewhere"]
        assert told["torch"] == chosen
        assert set(told["others"]) == {"2.11.0+cu130", "2.12.0", "2.13.0"} - {chosen}
        assert told["because"].startswith("From elsewhere: the same region") and f"this is {why}." in told["because"]
    other = written(tmp_path / "o.txt", "x: f64[7]\nreturn x * 5.5\n")
    assert cli.main(["archive", "show", "--near", other]) == 2
    assert "tritonworthy validate" in capsys.readouterr().err


def test_a_host_without_gpu_is_told_of_the_nearest_and_records_nothing(tmp_path: Path) -> None:
    region = tmp_path / "r.txt"
    region.write_text("a: bf16[256, 14336]\nb: bf16[256, 14336]\nreturn silu(a) * b\n")
    done = isolated("validate", str(region), "--candidates", "eager", "--device", "cpu")
    assert done.returncode == 2
    assert "From elsewhere" not in done.stderr  # the record has 32 × the bytes
    region.write_text("a: bf16[1024, 14336]\nb: bf16[1024, 14336]\nreturn silu(a) * b\n")
    done = isolated("validate", str(region), "--candidates", "eager", "--device", "cpu")
    assert "From elsewhere: the same program at other sizes (8 × the bytes), on NVIDIA H200" in done.stderr


def test_the_archive_needs_no_web(tmp_path: Path) -> None:
    listed = isolated("archive", "list", "--folder", str(tmp_path), "--region", "swiglu")
    assert listed.returncode == 0, listed.stderr
    assert "SwiGLU" in listed.stdout


# -------------------------------------------------------------------------------------------------------------- setting


@pytest.mark.parametrize(
    "environment",
    [{}, {"TRITONWORTHY_ARCHIVE_DIR": "/a"}, {"TRITONWORTHY_ARCHIVE_DIR": ""}, {"TRITONWORTHY_DATA_DIR": "/d"}],
)
def test_the_shell_and_the_server_mean_the_same_folder(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name in ("TRITONWORTHY_ARCHIVE_DIR", "TRITONWORTHY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings().records_dir == record_store.user_folder(environment)


def test_a_record_changed_on_disk_is_read_again(tmp_path: Path) -> None:
    shutil.copy(SHIPPED, tmp_path / "r.json")
    assert record_store.records(tmp_path)[0]["name"] == "SwiGLU"
    written(tmp_path / "r.json", validation(name="another and longer name"))
    assert record_store.records(tmp_path)[0]["name"] == "another and longer name"
    (tmp_path / "r.json").unlink()
    assert record_store.records(tmp_path) == ()


def test_the_docs_name_every_command_and_option() -> None:
    text = (ROOT / "docs" / "archive.md").read_text(encoding="utf-8")
    commands = subcommands(subcommands(cli._parser())["archive"])
    assert set(commands) == {"record", "list", "show", "merge"}
    for command, parser in commands.items():
        assert f"tritonworthy archive {command}" in text
        for option in (o for action in parser._actions for o in action.option_strings if o not in ("-h", "--help")):
            assert f"{option} " in text or f"`{option}`" in text, option
    for name in (*schema.SOFTWARE, *schema.READINGS.values()):
        assert name in text


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)
