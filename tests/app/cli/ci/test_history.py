"""History from a shell: what a run is of, series and changes as text and JSON, and the commits to bisect."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from app import cli
from app.cli.ci.run_context import context_options, run_context
from app.history.jsonl import append, read
from app.history.model import Entry
from tests.app.history.runs import noisy, run
from tests.conftest import ROOT

TRACE = str(ROOT / "app" / "examples" / "handrolled_blocks.json.gz")
CI_VARIABLES = (
    "GITHUB_EVENT_PATH", "GITHUB_REF", "CI_MERGE_REQUEST_IID", "GITHUB_SHA", "GITHUB_HEAD_REF", "GITHUB_REF_NAME",
    "GITHUB_BASE_REF", "CI_COMMIT_SHA", "CI_COMMIT_REF_NAME", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
)  # fmt: skip


def git(*arguments: str) -> str:
    command = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org", *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, and no CI."""
    for name in CI_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / "net.py").write_text("x = 1\n")
    git("add", "net.py")
    git("commit", "-q", "-m", "first")
    return tmp_path


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    context_options(parser)
    return parser.parse_args(words)


def test_a_run_is_of_the_commit_that_git_has_out(repository: Path) -> None:
    history = repository / "history.jsonl"
    history.write_text("")
    git("add", "history.jsonl")
    git("commit", "-q", "-m", "second")
    first, second = git("log", "--reverse", "--format=%H").split()
    history.write_text("\n")
    context = run_context(options(), history, {})
    assert (context.commit, context.branch, context.parents, context.commits) == (second, "main", (first,),
                                                                                  (first, second))  # fmt: skip
    assert not context.dirty  # by its own history
    (repository / "net.py").write_text("x = 2\n")
    assert run_context(options(), history, {}).dirty
    assert "torch" in context.software


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GITHUB_SHA": "a", "GITHUB_REF_NAME": "main", "GITHUB_BASE_REF": ""}, ("a", "main", "")),
        (
            {
                "GITHUB_SHA": "a",
                "GITHUB_REF": "refs/pull/7/merge",
                "GITHUB_HEAD_REF": "main",
                "GITHUB_BASE_REF": "main",
            },
            ("a", "pull/7", "main"),
        ),
        (
            {
                "CI_COMMIT_SHA": "b",
                "CI_COMMIT_REF_NAME": "main",
                "CI_MERGE_REQUEST_IID": "7",
                "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "main",
                "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            },
            ("b", "merge-request/7", "main"),
        ),
    ],
)
def test_a_run_in_ci_is_of_what_the_ci_says(
    repository: Path, variables: dict[str, str], expected: tuple[str, str, str]
) -> None:  # fmt: skip
    context = run_context(options(), repository / "h", variables)
    assert (context.commit, context.branch, context.base) == expected
    told = run_context(options("--commit", "c", "--branch", "d", "--software", "torch=9"), repository / "h", variables)
    assert (told.commit, told.branch, told.software["torch"]) == ("c", "d", "9")


def test_without_git_a_run_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    context = run_context(options(), tmp_path / "h", {})
    assert (context.commit, context.branch, context.commits, context.dirty) == ("", "", (), False)


def history_of(path: Path, commits: list[str], slow_from: int) -> list[Entry]:
    times = noisy([1000.0] * slow_from + [1060.0] * (len(commits) - slow_from))
    runs = [run(n, time, commit=commit) for n, (commit, time) in enumerate(zip(commits, times, strict=True))]
    append(path, runs)
    return runs


def test_series_and_changes_as_text_and_as_json(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = repository / "h.jsonl"
    history_of(path, [f"c{n:03}" for n in range(30)], 20)
    assert cli.main(["history", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("step.json, step time (nightly, main): 30 runs, now 1.06 ms")
    assert "regression: 6.1% more from c020 on, after c019, in the same environment (1.058 to 1.063 times" in text
    assert cli.main(["history", str(path), "--json"]) == 0
    (series,) = json.loads(capsys.readouterr().out)["items"]
    assert len(series["points"]) == 30
    assert series["changes"][0]["after"]["commit"] == "c020"
    assert cli.main(["history", str(path), "--subject", "other*"]) == 0
    assert capsys.readouterr().out == "no run of these names\n"


def test_what_is_no_history_is_bad_input_and_a_bad_line_is_named(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert cli.main(["history", "none.jsonl"]) == 1
    (repository / "bad.jsonl").write_text("{\n")
    assert cli.main(["history", "bad.jsonl"]) == 1
    assert "bad.jsonl:1: left out: not JSON, or cut off" in capsys.readouterr().err


def test_bisection_names_the_commits_that_lie_between_and_the_one_once_it_is_known(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    for number in range(40):
        git("commit", "-q", "--allow-empty", "-m", str(number))
    commits = git("log", "--reverse", "--format=%H").split()
    measured = commits[::4]
    runs = history_of(repository / "h.jsonl", measured, 6)
    check = ["check", "--bisect", "--history", "h.jsonl", "step.json", "--config", "c.toml", "--branch", "main"]
    (repository / "c.toml").write_text('[check]\nname = "nightly"\n')
    assert cli.main(check) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"  last good {commits[20]}, first bad {commits[24]}"
    wanted = "tritonworthy check step.json --history h.jsonl --append"
    assert lines[3:] == [f"    git checkout {commits[n]}, record the trace again, {wanted}" for n in (22, 21, 23)]
    more = [run(100, 1001.0, commit=commits[22]), run(101, 1061.0, commit=commits[23])]
    append(repository / "h.jsonl", more)
    assert cli.main(check) == 0
    assert f"no commit is left between them: it is {commits[23]}" in capsys.readouterr().out
    assert len(read(repository / "h.jsonl").entries) == len(runs) + 2


def test_bisection_without_the_commits_says_the_range(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history_of(repository / "h.jsonl", [f"c{n:03}" for n in range(30)], 20)
    (repository / "c.toml").write_text('[check]\nname = "nightly"\n')
    assert cli.main(["check", "--bisect", "--history", "h.jsonl", "--config", "c.toml"]) == 0
    text = capsys.readouterr().out
    assert "last good c019, first bad c020" in text
    assert "git does not have both here" in text


@pytest.mark.parametrize("words", [["--append"], ["--bisect"]])
def test_what_needs_a_history_says_so(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", TRACE, *words]) == 3
    assert "--append and --bisect go with --history FILE" in capsys.readouterr().err


def test_a_check_adds_its_run_and_says_that_the_history_is_short(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (repository / "tritonworthy.toml").write_text('[assertions]\nhistory = "warn"\n')
    assert cli.main(["check", TRACE, "--history", "h.jsonl", "--append"]) == 0
    assert "the history has no run of it yet" in capsys.readouterr().out
    entries = read(repository / "h.jsonl").entries
    assert {(e.commit, e.environment.device) for e in entries} == {(git("rev-parse", "HEAD"), "NVIDIA H200")}
    assert {m.metric for e in entries for m in e.measures} == {"step time", "region time"}


def test_a_trace_that_is_judged_again_is_no_second_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ["check", TRACE, "--history", "h.jsonl", "--append", "--commit"]
    for _ in range(3):
        assert cli.main([*check, "aaa"]) == 0
    assert "h.jsonl: nothing was added: it has this measurement of this commit already" in capsys.readouterr().err
    assert cli.main([*check, "bbb"]) == 0
    assert {entry.commit for entry in read(repository / "h.jsonl").entries} == {"aaa", "bbb"}
    assert len({entry.id for entry in read(repository / "h.jsonl").entries}) == len(
        read(repository / "h.jsonl").entries
    )


def test_a_commit_that_is_none_is_not_added_and_the_check_is_judged(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", TRACE, "--history", "h.jsonl", "--append", "--commit", "a; sh #"]) == 0
    assert "nothing was added: a commit has letters, digits" in capsys.readouterr().err
    assert read(repository / "h.jsonl").entries == ()


def test_a_pull_request_is_of_its_own_commit_and_not_of_the_merge(repository: Path) -> None:
    git("checkout", "-q", "-b", "fix")
    git("commit", "-q", "--allow-empty", "-m", "head")
    head = git("rev-parse", "HEAD")
    git("checkout", "-q", "main")
    git("commit", "-q", "--allow-empty", "-m", "base")
    base = git("rev-parse", "HEAD")
    git("merge", "-q", "--no-ff", "fix", "-m", "merge")
    (repository / "event.json").write_text(
        json.dumps({"number": 7, "pull_request": {"number": 7, "head": {"sha": head}}})
    )
    variables = {
        "GITHUB_SHA": git("rev-parse", "HEAD"), "GITHUB_HEAD_REF": "main", "GITHUB_BASE_REF": "main",
        "GITHUB_EVENT_PATH": str(repository / "event.json"),
    }  # fmt: skip
    context = run_context(options(), repository / "h", variables)
    assert (context.commit, context.branch) == (head, "pull/7")
    assert context.commits[-2:] == (base, head)
    assert not context.dirty


def test_a_pull_request_is_bisected_with_the_runs_of_its_base(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (repository / "c.toml").write_text('[check]\nname = "nightly"\n')
    append(repository / "h.jsonl", [run(n, time) for n, time in enumerate(noisy([1000.0] * 20))])
    append(repository / "h.jsonl", [run(20, 1060.0, branch="pull/7")])
    check = ["check", "--bisect", "--history", "h.jsonl", "--config", "c.toml", "--branch", "pull/7"]
    assert cli.main([*check, "--base-branch", "main"]) == 0
    assert "last good c019, first bad c020" in capsys.readouterr().out


def test_bisection_in_a_shallow_clone_says_how_to_get_the_commits(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    git("commit", "-q", "--allow-empty", "-m", "second")
    git("clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    monkeypatch.chdir(repository / "shallow")
    history_of(Path("h.jsonl"), [f"c{n:03}" for n in range(30)], 20)
    Path("c.toml").write_text('[check]\nname = "nightly"\n')
    assert cli.main(["check", "--bisect", "--history", "h.jsonl", "--config", "c.toml"]) == 0
    assert "check out with fetch-depth: 0" in capsys.readouterr().out


def test_a_history_that_cannot_be_written_costs_no_report(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    words = ["check", TRACE, "--append", "--format", "json", "--out", "reports"]
    assert cli.main([*words, "--history", "/proc/h.jsonl"]) == 2  # not there, and nobody can make it
    assert (repository / "reports" / "check.json").exists()
    assert "the run cannot be added to the history: /proc/h.jsonl: No such file" in capsys.readouterr().err


def test_counts_are_whole_and_without_a_confidence(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(repository / "h.jsonl", [run(n, 3.0 if n == 2 else 1.0, unit="kernels") for n in range(3)])
    assert cli.main(["history", "h.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "3 runs, now 3 kernels\n" in text
    assert text.endswith("in the same environment (3 kernels instead of 1)\n")


def test_changes_of_a_working_tree_are_told_as_that(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(n, 1.0 + n, unit="kernels", commit="ba91", dirty=n > 0) for n in range(3)]
    append(repository / "h.jsonl", runs)
    assert cli.main(["history", "h.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "100.0% more in the same environment: ba91 has changes that were not committed (2 kernels" in text
    assert "changes to ba91 that were not committed may have become others (3 kernels instead of 2)" in text


def test_a_run_outside_of_the_band_that_is_not_told_is_no_lack_of_change(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    append(repository / "h.jsonl", [run(n, time) for n, time in enumerate([*noisy([1000.0] * 20), 1010.0])])
    assert cli.main(["history", "h.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "this run lies outside of the band; one run, or a few after an outlier, are not told yet" in text
    assert "no change beyond" not in text
