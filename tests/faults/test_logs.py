"""Log lines: the job's id on each, and nothing that a user sent can forge, split or hide one."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path

import pytest

from app import logs
from tests.faults.conftest import Bench

EVIL = "a\r\n2026-01-01T00:00:00.000Z CRITICAL root: forged\x1b[2K\u202eevil\u2028\x00é"


def record(message: str, *values: object, exception: bool = False) -> logging.LogRecord:
    return logging.LogRecord("t", logging.WARNING, "f.py", 1, message, values, sys.exc_info() if exception else None)


def test_a_json_line_is_one_object_with_the_jobs_id() -> None:
    def in_thread() -> None:
        logs.JOB.set("j" * 26)
        lines.append(logs.JsonLines().format(record("read %s", EVIL)))

    lines: list[str] = []
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    (line,) = lines
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert line.isprintable()
    answer = json.loads(line)
    assert answer["message"] == f"read {EVIL}"
    assert (answer["job"], answer["level"], answer["logger"]) == ("j" * 26, "warning", "t")
    assert "job" not in json.loads(logs.JsonLines().format(record("no job"))), "other threads have none"


def test_a_text_line_stays_one_line() -> None:
    line = logs.TextLines().format(record("name %s", EVIL))
    assert line.isprintable()
    assert line.endswith(
        r"WARNING t: name a\r\n2026-01-01T00:00:00.000Z CRITICAL root: forged\x1b[2K\u202eevil\u2028\x00é"
    )


def test_a_traceback_cannot_forge_a_line() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        text = logs.TextLines().format(record("failed", exception=True))
        line = logs.JsonLines().format(record("failed", exception=True))
    first, *rest = text.split("\n")
    assert first.endswith("failed")
    assert all(part.startswith("    ") and part.isprintable() for part in rest)
    assert "ValueError" in json.loads(line)["exception"]
    assert len(line.splitlines()) == 1


def test_every_line_about_a_job_carries_its_id(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Kept()
    handler.setFormatter(logs.JsonLines())
    logger = logging.getLogger("tritonworthy.queue")
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, logger.name)  # by setLevel: what an earlier test let be remembered is forgotten
    bench.go()
    queue = bench.queue("hang")
    first, second = bench.add(), bench.add()
    bench.until(second, "done")
    queue.stop()
    logger.removeHandler(handler)
    about = [(found.get("job"), found["message"]) for found in map(json.loads, lines) if " job " in found["message"]]
    assert [job for job, _ in about] == [first, first, second, second]
    assert about[0][1] == "validate job begins, attempt 1"
    assert about[1][1].startswith("validate job ended: ok, ")


def test_serve_writes_json_lines_where_it_is_asked_to(tmp_path: Path) -> None:
    from tests.faults.servers import Server, submit, until

    (tmp_path / "go").touch()
    server = Server(tmp_path, "hang", LOG_FORMAT="json")
    try:
        with server.client() as client:
            job_id = submit(client)
            until(client, job_id, "done")
            client.get("/api/v1/traces?name=%0Aforged")
    finally:
        server.kill()
    found = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(found[0])
    assert any(line.get("job") == job_id and "ended: ok" in line["message"] for line in found)
    assert any(line["logger"] == "uvicorn.access" for line in found)
