"""The host's time as things to do: one for each cause, bounded by it, and the rest as what it is."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.actions.host import OF_OPERATIONS, host_waits
from app.trace_report.actions.model import Option
from app.trace_report.actions.recording import STARTING
from app.trace_report.step_model import Step, step_of, step_us
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]


def step(host: float = 500.0) -> Step:
    made = step_of(trace([region("a", 500.0, "skip")], host=host))  # type: ignore[arg-type]
    assert made is not None
    return made


def spent(kind: str, time_us: float, name: str = "", **more: Any) -> Any:
    return {
        "kind": kind,
        "name": name,
        "time_us": time_us,
        "longest_us": time_us,
        "following": "",
        "module": "",
        **more,
    }


def titles(options: list[Option]) -> list[str]:
    return [option.title for option in options]


BLOCKER: Any = {
    "kind": "scalar-read", "op": "aten::item", "sources": ["model.py:12 forward"], "modules": ["Block_0"],
    "remedy": "keep it on the GPU",
}  # fmt: skip


def test_of_a_trace_without_times_all_of_it_is_the_rest_and_names_the_read_that_makes_it() -> None:
    made = step()
    (option,) = host_waits(made, [], [BLOCKER])
    assert option.evidence["kind"] == "bound"
    assert not option.counted
    assert option.where == {"module": "Block_0", "file": "model.py", "line": 12}
    assert "keep it on the GPU" in option.because and option.call == "", "what to do is no code"
    assert step_us(made, [option.change]) == pytest.approx((500.0, 750.0, 1000.0))  # type: ignore[list-item]
    (unnamed,) = host_waits(made, [], [])
    assert unnamed.where is None


def test_each_cause_is_bounded_by_its_own_time_and_the_rest_by_what_is_left() -> None:
    times = [
        spent("loader", 250.0, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        spent("library", 80.0, "aten::_cudnn_attention_forward"),
        spent("library", 40.0, "aten::_cudnn_attention_backward"),
    ]
    options = host_waits(step(), times, [])
    assert titles(options) == [
        "Load data in worker processes", "Keep cuDNN from planning attention for every new length",
        "Find what the host waits for",
    ]  # fmt: skip
    assert [o.change.ended_us.high for o in options if o.change] == pytest.approx([250.0, 120.0, 130.0])
    assert "DataLoader(" in options[0].call
    assert "`aten::_cudnn_attention_forward` and `aten::_cudnn_attention_backward`" in options[1].because


def test_a_loader_with_workers_needs_other_advice_than_one_without() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    (option, *_) = host_waits(step(), [spent("loader", 400.0, name)], [])
    assert "more workers" in option.title
    assert "num_workers" in option.call


def test_a_loader_that_other_steps_wait_for_comes_first_and_promises_nothing() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    option, *_ = host_waits(step(0.0), [spent("loader", 900.0, name, other_steps=True)], [])
    assert (option.first, option.change) == (True, None)
    assert "in the mean of all recorded steps the GPU waits 0.9 ms" in option.because
    first = reported("param_resnet_kineto.json.gz")["actions"][0]
    assert first["title"] == "Give the data loader more workers, or less to do"
    assert "222.0 ms" in first["because"], "read off: 216 ms of 321"


def test_what_can_only_be_searched_for_is_told_from_a_larger_share_on() -> None:
    small = [spent("library", 20.0, "aten::addmm"), spent("inputs", 20.0)]
    assert titles(host_waits(step(40.0), small, [])) == ["Prepare inputs while the GPU works"]
    (option,) = host_waits(step(60.0), [spent("library", 60.0, "aten::addmm")], [])
    assert option.title == "Find what `addmm` does on the host"


def test_python_is_named_by_its_annotation_or_by_what_follows_it() -> None:
    named = host_waits(step(), [spent("python", 500.0, "augment", following="aten::to")], [])
    assert titles(named) == ["Find what Python does in `augment`"]
    bare = host_waits(step(), [spent("python", 500.0, following="aten::to")], [])
    assert titles(bare) == ["Find what Python does before `aten::to`"]


@pytest.mark.parametrize("kind", sorted(STARTING))
def test_what_a_process_does_once_is_nothing_to_wait_less_for(kind: str) -> None:
    assert host_waits(step(), [spent(kind, 500.0, "aten::empty")], []) == []


def test_buffers_that_ddp_sends_before_every_forward_have_their_switch() -> None:
    actions = {a["title"]: a for a in reported("hta_nccl.json.gz")["actions"]}
    (title,) = [t for t in actions if "buffers" in t]
    assert "broadcast_buffers=False" in actions[title]["call"]
    assert 15_000 < actions[title]["saves_us"]["high"] < 40_000


def test_a_name_with_braces_is_repeated_as_it_is() -> None:
    (option,) = host_waits(step(), [spent("cpu", 500.0, "mine::f{0}")], [])
    assert "`mine::f{0}`" in option.because


@pytest.mark.parametrize("remedy", [remedy for _, remedy in OF_OPERATIONS], ids=lambda remedy: remedy.title)
def test_what_is_to_be_typed_is_code(remedy: Any) -> None:
    if remedy.call.startswith("TORCH_LOGS"):
        return  # of a shell
    compile(remedy.call, "call", "exec")


def test_new_lengths_in_every_step_are_the_first_thing_to_do_about_a_step_that_plans_for_each() -> None:
    first = reported("bert_train_varlen_fp16_eager.json.gz")["actions"][0]
    assert first["call"] == "torch.backends.cuda.enable_cudnn_sdp(False)"
    assert first["saves_us"]["high"] == pytest.approx(114_500, rel=0.02)  # read off: 687 ms in six steps
