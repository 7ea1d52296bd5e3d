"""docs/operations.md: every promise names a test that there is, its commands run, its words are the program's."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from app.jobs.gpu_health import AGAIN_S
from app.jobs.queue import STOP_S
from app.storage import damage
from app.storage.store import Store
from app.web.server import health
from profiler.child.lines import LOG_BYTES
from tests.app.storage.validations import add_validation
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table whose header begins so."""
    table = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_promise_names_a_test_that_there_is() -> None:
    promises = rows("what happens")
    assert len(promises) > 25
    for _, promise, cell in promises:
        file, _, name = cell.strip("`").partition("::")
        assert (ROOT / file).is_file(), f"{promise}: {file}"
        found = names_in(ROOT / file)
        assert found if not name else name in found, f"{promise}: {cell}"


def test_every_file_of_faults_is_in_the_table() -> None:
    named = {cell.strip("`").partition("::")[0] for _, _, cell in rows("what happens")}
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "faults").glob("test_*.py")}
    assert there <= named


def test_what_readyz_says_is_what_the_page_explains() -> None:
    said = {cell.strip("`").removesuffix(" ...").removesuffix(":") for cell, _ in rows("`/readyz` says")}
    words = {
        f"the database {health.describe_database_error(OSError(e))}"
        for e in ("locked", "disk is full", "readonly", "gone")
    }
    words |= {
        health.STOPPING,
        health.NO_QUEUE,
        health.RESULT_WAITS,
        health.ALL_STUCK,
        health.NO_CHILD,
        damage.damage_error().words,
    }
    words |= {
        lost.words.partition(":")[0] for lost in (damage.removal_error(), damage.removal_error("The folder of uploads"))
    }
    words.add(health._run(health.Check("...", lambda: str(1 / 0))))
    words |= {"the data folder cannot be written", "There is no room left for uploads on this server."}
    assert said == words


def test_figures_on_the_page_are_the_codes() -> None:
    assert f"every {AGAIN_S:.0f} s" in PAGE
    assert f"{LOG_BYTES >> 20} MiB at most" in PAGE
    assert re.search(r"wait for (\d+) s longer", PAGE)[1] == f"{STOP_S + 5:.0f}"  # type: ignore[index]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).is_file(), target


def test_the_backup_of_a_database_in_use_is_whole(tmp_path: Path) -> None:
    (command,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "data").mkdir()
    (tmp_path / "backup").mkdir()
    store = Store(f"sqlite:///{tmp_path / 'data' / 'tritonworthy.db'}")
    stop = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stop.is_set():
            written.append(
                add_validation(store, name=f"v{len(written)}", region="x", region_id=None, request={}, cap=10**6)[0]
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        environment = os.environ | {"DATA": str(tmp_path / "data"), "BACKUP": str(tmp_path / "backup")}
        while len(written) < 20:
            assert writer.is_alive()
        before = list(written)
        subprocess.run(["bash", "-e", "-c", command], env=environment, check=True, timeout=60)
    finally:
        stop.set()
        writer.join()
        store.close()
    copy = Store(f"sqlite:///{tmp_path / 'backup' / 'tritonworthy.db'}")
    # Every validation with its job: the copy is of one moment, after what was there when it began.
    assert all(copy.job_state(i) == "queued" for i in before)
    page = copy.validations(200)["items"]
    assert all(copy.job(v["id"]) is not None for v in page)
    copy.close()


@pytest.mark.parametrize("name", ["TRITONWORTHY_MAX_UPLOAD_BYTES", "TRITONWORTHY_MAX_WAIT_S"])
def test_the_proxy_lets_through_what_the_server_takes(name: str) -> None:
    from app.settings import GIB, Settings

    (block,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.M | re.S)
    value = re.search(rf"(\d+)(g|s);\s+# .*{name}", block)
    assert value
    unit = {"g": GIB, "s": 1}[value[2]]
    setting = Settings.model_fields[name.removeprefix("TRITONWORTHY_").lower()].default
    assert int(value[1]) * unit >= setting
