"""Advice on a convolution with its tail: neither hides the other."""

from __future__ import annotations

from typing import Any

from tests.app.trace_report.reports import reported

Json = dict[str, Any]

BLOCK = "convolution, batch norm"


def blocks() -> list[Json]:
    regions = reported("timm_resnet50_train_fp32.json.gz")["regions"]
    return [r for r in regions if r["name"].startswith(BLOCK)]


def test_blocks_hold_nearly_all_of_the_network_and_equal_ones_are_one_region() -> None:
    answer = reported("timm_resnet50_train_fp32.json.gz")
    time = sum(r["time_us_per_step"] for r in answer["regions"])
    assert sum(r["time_us_per_step"] for r in blocks()) > 0.9 * time
    assert len(blocks()) <= 8
    assert sum(r["calls_per_step"] for r in blocks()) == 53  # convolutions of a ResNet-50


def test_the_tail_is_advised_on_though_the_convolution_runs_on_a_library() -> None:
    first = blocks()[0]
    assert first["advice"]["tool"] == "compile"
    times = {a["candidate"]: a["time_us"] for a in first["advice"]["alternatives"]}
    parts = {p["name"] for p in first["rests_on"]["parts"]}
    assert {"convolution", "native_batch_norm", "convolution_backward"} <= parts
    assert times["compile"]["mid"] < times["eager"]["mid"]


def test_nobody_is_told_to_write_a_convolution_that_a_library_has() -> None:
    for region in blocks():
        assert region["advice"]["tool"] != "triton"
        triton = [a for a in region["advice"]["alternatives"] if a["tool"] == "triton"]
        assert triton, "generated round the convolution, or to be written"
        custom = [a for a in triton if a["candidate"] == "triton:custom"]
        assert not any(a["admitted"] for a in custom)
        assert all("its convolution runs on a library's hand-tuned kernel" in a["note"] for a in custom)


def test_one_filter_a_channel_may_still_be_written() -> None:
    """cuDNN's kernels are not made for depthwise convolutions."""
    regions = reported("timm_convnext_train_channels_last.json.gz")["regions"]
    depthwise = [r for r in regions if r["name"] == "depthwise convolution"]
    assert {r["advice"]["tool"] for r in depthwise[:3]} == {"triton"}
