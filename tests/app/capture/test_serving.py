"""A server that records itself: the calls in its own words, all ranks' traces, and what stood in the way."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from app.capture import written_traces
from app.capture.engines import SGLANG, VLLM, Engine
from app.capture.serving import Request, ServingError, record
from tests.app.capture.engine_server import TRACE, Behaviour, engine, name_of


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_traces, "POLL_S", 0.02)
    monkeypatch.setattr(written_traces, "SETTLED_S", 0.1)


def asked(one: Engine, url: str, folder: Path, **more: object) -> Request:
    return Request(one, url, folder, **{"seconds": 0.05, "timeout_s": 20.0, **more})  # type: ignore[arg-type]


def silent(line: str) -> None:
    """Nobody reads what is said meanwhile."""


def test_vllm_is_started_and_stopped_without_a_body_and_its_front_ends_trace_is_left_out(tmp_path: Path) -> None:
    server = Behaviour("vllm", tmp_path, ranks=2)
    with engine(server) as url:
        traces = record(asked(VLLM, url, tmp_path, ranks=2), silent)
    assert [path.name for path in traces] == [name_of("vllm", 0), name_of("vllm", 1)]
    assert server.calls == [("/start_profile", None), ("/stop_profile", None)]


def test_sglang_is_told_where_and_what_to_record(tmp_path: Path) -> None:
    server = Behaviour("sglang")
    with engine(server) as url:
        (trace,) = record(asked(SGLANG, url, tmp_path), silent)
    assert trace.read_bytes() == TRACE.read_bytes()
    assert server.calls[0] == (
        "/start_profile",
        {"output_dir": str(tmp_path), "activities": ["CPU", "GPU"], "record_shapes": True, "with_stack": True},
    )


@pytest.mark.parametrize(("one", "field"), [(VLLM, "max_iterations"), (SGLANG, "num_steps")])
def test_after_steps_the_server_ends_by_itself_and_is_stopped_for_good(tmp_path: Path, one: Engine, field: str) -> None:
    server = Behaviour(one.name, tmp_path)
    with engine(server) as url:
        (trace,) = record(asked(one, url, tmp_path, steps=7), silent)
    assert trace.name == name_of(one.name, 0)
    assert server.calls[0][1][field] == 7
    assert [path for path, _ in server.calls] == ["/start_profile", "/stop_profile"]


def test_traces_of_an_earlier_run_are_left_alone(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.pt.trace.json.gz"
    earlier.write_bytes(TRACE.read_bytes())
    with engine(Behaviour("vllm", tmp_path)) as url:
        assert earlier not in record(asked(VLLM, url, tmp_path), silent)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (Behaviour("vllm", is_profiling_on=False), "answers 404 to /start_profile: start it with --profiler-config"),
        (Behaviour("vllm", key="secret"), "answers 401 to /start_profile: it wants its API key"),
        (Behaviour("vllm", recording={}), "answers 500 to /start_profile"),
    ],
    ids=["profiling is off", "a key is wanted", "somebody records already"],
)
def test_a_refusal_says_what_to_do(tmp_path: Path, behaviour: Behaviour, said: str) -> None:
    with engine(behaviour) as url, pytest.raises(ServingError, match=said):
        record(asked(VLLM, url, tmp_path), silent)


def test_the_key_is_sent(tmp_path: Path) -> None:
    with engine(Behaviour("vllm", tmp_path, key="secret")) as url:
        assert record(asked(VLLM, url, tmp_path, token="secret"), silent)


def test_a_server_that_is_slow_to_stop_has_a_limit_and_is_named(tmp_path: Path) -> None:
    with (
        engine(Behaviour("sglang", answer_s=1.0)) as url,
        pytest.raises(ServingError, match=r"SGLang has not answered /stop_profile within 0\.2 s"),
    ):
        record(asked(SGLANG, url, tmp_path, timeout_s=0.2), silent)


def test_an_idle_server_and_a_folder_that_stays_empty_are_told_from_each_other(tmp_path: Path) -> None:
    with (
        engine(Behaviour("sglang", is_idle=True)) as url,
        pytest.raises(ServingError, match="no kernel of a GPU: the server was idle"),
    ):
        record(asked(SGLANG, url, tmp_path, timeout_s=0.3), silent)
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    with (
        engine(Behaviour("vllm", tmp_path / "there")) as url,
        pytest.raises(ServingError, match=r"no new trace in .*here within .* is it the folder that vLLM writes to"),
    ):
        record(asked(VLLM, url, tmp_path / "here", timeout_s=0.3), silent)


def test_fewer_traces_than_ranks_are_not_taken_for_all(tmp_path: Path) -> None:
    with engine(Behaviour("sglang", ranks=1)) as url, pytest.raises(ServingError, match="1 of 2 traces"):
        record(asked(SGLANG, url, tmp_path, ranks=2, timeout_s=0.3), silent)


def test_addresses_and_folders_are_checked_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="no address of a server"):
        record(asked(VLLM, "localhost:8000", tmp_path), silent)
    with pytest.raises(ServingError, match="no such folder"):
        record(asked(VLLM, "http://127.0.0.1:1", tmp_path / "none"), silent)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServingError, match="does not answer"):
            record(asked(VLLM, nobody, tmp_path), silent)


def test_a_kernel_is_seen_across_the_ends_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_traces, "CHUNK_BYTES", 8)
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel"}]}')
    assert written_traces.has_kernels(path)
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op"}]}')
    assert not written_traces.has_kernels(path)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(TRACE.read_bytes()[:200])
    assert not written_traces.has_kernels(cut)
