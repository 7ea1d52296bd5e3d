"""The fleet as data: what hosts declare becomes kinds, and what is wrong with a host is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import app
from app.cli import main
from app.cli.fleet import status_text
from app.jobs.ray import model


def host(name: str, has: Mapping[str, float], **facts: Any) -> model.Node:
    row = {"NodeID": name, "NodeManagerHostname": name, "Alive": True, "Resources": has}
    return model.node_from_ray(row, facts)


def gpus(name: str, accelerator: str, count: int, version: str = app.__version__, **facts: Any) -> model.Node:
    return host(name, {"GPU": count, **model.resources(accelerator, 0, version)}, **facts)


def test_ray_s_names_are_the_device_table_s() -> None:
    names = {"H200": "NVIDIA H200", "AMD-Instinct-MI300X-OAM": "AMD Instinct MI300X", "L4": "NVIDIA L4",
             "L40S": "NVIDIA L40S", "A100-80G": "NVIDIA A100", "MI999": "MI999"}  # fmt: skip
    assert {name: gpus("a", name, 1).device for name in names} == names


def test_kinds_count_hosts_gpus_slots_and_what_is_busy() -> None:
    nodes = [gpus("a", "H200", 8), gpus("b", "H200", 1), gpus("c", "L40S", 4), host("d", model.resources(None, 3))]
    # Two jobs on the H200s: Ray takes 0.001 of a host's accelerator_type for each.
    gpu_types = model.gpu_types(nodes, {"accelerator_type:H200": 1.998, "accelerator_type:L40S": 1.0})
    assert [(k.device, k.nodes, k.gpus, k.slots, k.busy, k.free) for k in gpu_types] == [
        ("NVIDIA H200", 2, 9, 2, 2, 0),
        ("NVIDIA L40S", 1, 4, 1, 0, 1),
    ]
    assert model.read_slots(nodes) == 3


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (gpus("a", "H200", 8, "0.0.1"), f"it runs 0.0.1, this server {app.__version__}"),
        (host("a", {"GPU": 8, "accelerator_type:H200": 1}), "no version that it declares"),
        (host("a", {"GPU": 8, "accelerator_type:H200": 1, f"tritonworthy-{app.__version__}": 1}), "no measure_slot"),
        (gpus("a", "H200", 8, gpu="NVIDIA L40S"), "it declares H200 and has NVIDIA L40S"),
        (gpus("a", "H200", 8, gpu=None, note="driver too old"), "driver too old"),
    ],
)
def test_a_host_that_cannot_be_right_gets_no_work_and_says_why(node: model.Node, why: str) -> None:
    assert why in node.sick
    (kind,) = model.gpu_types([node], {})
    assert kind.slots == 0
    assert why in model.refusal("NVIDIA H200", [node, gpus("b", "L40S", 1)])
    assert not model.refusal("NVIDIA H200", [node, gpus("b", "H200", 1)])


def test_an_unknown_kind_is_refused_with_the_kinds_there_are() -> None:
    nodes = [gpus("a", "H200", 1), gpus("b", "L40S", 1, "0.0.1")]
    assert model.refusal("NVIDIA B200", nodes) == "No host of the fleet has 'NVIDIA B200'. There are: NVIDIA H200."
    assert "There are: none" in model.refusal("NVIDIA B200", [])


def test_status_says_each_kind_and_each_sick_host() -> None:
    nodes = [gpus("a", "H200", 8, versions={"torch": "2.13.0"}), gpus("b", "H200", 8, "0.0.1")]
    kinds = [model.gpu_type_json(k) for k in model.gpu_types(nodes, {"accelerator_type:H200": 2.0})]
    text = status_text(kinds, 0).splitlines()
    assert text[1].split()[:7] == ["NVIDIA", "H200", "2", "16", "1", "0", "1"]
    assert "torch 2.13.0" in text[1]
    assert text[2].startswith("  sick: b: it runs 0.0.1")
    assert "no host reads traces" in text[3]


def test_the_command_line_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITONWORTHY_RAY_TOKEN_FILE", raising=False)
    assert main(["fleet", "status"]) == 2
    assert "TRITONWORTHY_RAY_TOKEN_FILE" in capsys.readouterr().err
    assert main(["fleet", "resources", "--read-slots", "4"]) == 0
    assert '"read_slot": 4' in capsys.readouterr().out
