"""Devices: found by the names that drivers give, and rates that follow from what was measured."""

from __future__ import annotations

import dataclasses

import pytest

from profiler.hardware import DEFAULT_DEVICE, DEVICES, Properties, device_by_properties, find_device


@pytest.mark.parametrize(
    ("name", "found"),
    [("NVIDIA H200", "NVIDIA H200"), ("NVIDIA H100 80GB HBM3", "NVIDIA H100"), ("NVIDIA A100-SXM4-80GB", "NVIDIA A100"),
     ("NVIDIA L40S", "NVIDIA L40S"), ("NVIDIA L4", "NVIDIA L4"), ("L4", "NVIDIA L4"), ("h200", "NVIDIA H200"),
     ("Tesla V100-SXM2-32GB", "NVIDIA V100"), ("AMD Instinct MI300X", "AMD Instinct MI300X"),
     ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"), ("NVIDIA GB200", "NVIDIA B200"),
     ("NVIDIA B300 SXM6 AC", "NVIDIA B300"), ("NVIDIA GB300", "NVIDIA B300"),
     ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090"), ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
     ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
     ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
      "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
     ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
     ("NVIDIA GB10", "NVIDIA GB10"), ("AMD Instinct MI325X", "AMD Instinct MI325X"),
     ("AMD Instinct MI350X", "AMD Instinct MI350X"), ("AMD Instinct MI355X", "AMD Instinct MI355X"),
     ("NVIDIA GeForce RTX 5090 D", None), ("NVIDIA GeForce RTX 4090 D", None), ("NVIDIA RTX PRO 6000D", None),
     ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", None), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
     ("Intel Arc", None), ("", None), (None, None)],
)  # fmt: skip
def test_devices_are_found_by_their_drivers_names(name: str | None, found: str | None) -> None:
    device = find_device(name)
    assert (device.name if device else None) == found


def test_a_device_is_not_taken_for_one_whose_name_begins_like_its_own() -> None:
    for device in DEVICES:
        for name in (*device.matches, f"{device.name} PCIe"):
            assert find_device(name) is device, f"{name}: its row belongs before that of the shorter name"


def test_every_device_says_where_its_numbers_are_from() -> None:
    assert len({d.name for d in DEVICES}) == len(DEVICES)
    for device in DEVICES:
        assert device.source
        assert device.memory_rate > 1e11
        assert device.l2_bytes >= 2**20
        assert device.f16_rate >= device.f32_rate
        assert bool(device.measured_copy_rate) <= bool(device.measured_source)
        assert (device.measured_copy_rate or 0) <= device.memory_rate
        assert (device.measured_matmul_rate or 0) <= (device.bf16_rate or device.f32_rate)
    assert find_device(DEFAULT_DEVICE) is not None


def test_narrower_numbers_are_never_slower_and_f4_is_where_it_is() -> None:
    with_f4 = {d.arch for d in DEVICES if d.f4_rate}
    assert with_f4 == {"sm_100", "sm_103", "sm_120", "sm_121", "gfx950"}
    for device in DEVICES:
        assert device.matmul_rate("f4e2m1x2") >= device.matmul_rate("f8e4m3") >= device.matmul_rate("bf16")
    b300 = find_device("B300")
    assert b300 is not None and b300.matmul_rate("f4e2m1x2") == 13.5e15 and b300.matmul_rate("f8e5m2") == 4.5e15


WORKSTATION = {"f32": 256, "tf32": 512, "bf16": 1024, "f8e4m3": 2048, "f4e2m1x2": 4096}
CDNA4 = {"f32": 256, "bf16": 4096, "f8e4m3": 8192, "f4e2m1x2": 16384}
PER_CLOCK = {
    "NVIDIA GeForce RTX 5090": (2.407e9, {"f32": 256, "bf16": 512, "f8e4m3": 1024, "f4e2m1x2": 4096}),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": (2.617e9, WORKSTATION),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": (2.28e9, WORKSTATION),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (2.4934e9, WORKSTATION),
    "NVIDIA GB10": (2.418e9, WORKSTATION),
    "NVIDIA L40S": (2.52e9, {"f32": 256, "tf32": 512, "bf16": 1024, "f8e4m3": 2048}),
    "AMD Instinct MI325X": (2.1e9, {"f32": 256, "tf32": 1024, "bf16": 2048, "f8e4m3": 4096}),
    "AMD Instinct MI350X": (2.2e9, CDNA4),
    "AMD Instinct MI355X": (2.4e9, CDNA4),
}
"""Highest clock in Hz, and FLOPs a clock of one processor by dtype, as the sources of the rows have them."""


@pytest.mark.parametrize("name", PER_CLOCK)
def test_a_rate_is_that_of_its_processors_and_clock_without_sparsity(name: str) -> None:
    device = find_device(name)
    assert device is not None
    clock, per_clock = PER_CLOCK[name]
    for dtype, flops in per_clock.items():
        assert device.matmul_rate(dtype) == pytest.approx(device.processors * clock * flops, rel=0.015), dtype


def test_measured_ceilings_come_before_the_datasheets() -> None:
    h200, h100 = find_device("H200"), find_device("H100")
    assert h200 is not None and h100 is not None
    assert (h200.copy_rate, h200.ceilings_measured) == (4.3e12, True)
    assert (h100.copy_rate, h100.ceilings_measured) == (3.35e12, False)
    assert h200.matmul_rate("bf16") == 790e12
    assert h200.matmul_rate("f8e4m3") == pytest.approx(2 * 790e12)
    assert h200.matmul_rate("f32") == h200.f32_rate  # without TF32, on the vector units
    assert h200.matmul_rate("f64") == h200.f32_rate / 2


def test_older_devices_fall_back_to_what_they_have() -> None:
    v100 = find_device("V100")
    assert v100 is not None
    assert v100.matmul_rate("bf16") == v100.matmul_rate("tf32") == v100.f32_rate
    assert v100.matmul_rate("f8e4m3") == v100.f16_rate


def test_a_measured_rate_scales_the_others() -> None:
    h100 = find_device("H100")
    assert h100 is not None
    slower = dataclasses.replace(h100, measured_matmul_rate=h100.bf16_rate / 2)
    assert slower.matmul_rate("f16") == pytest.approx(h100.f16_rate / 2)
    assert slower.matmul_rate("f32") == h100.f32_rate


AS_DRIVERS_TELL = {
    "NVIDIA V100": Properties((7, 0), 80, 32, 34_084_028_416),
    "NVIDIA H100": Properties((9, 0), 132, 32, 85_018_279_936),
    "NVIDIA H200": Properties((9, 0), 132, 32, 150_109_880_320),
    "AMD Instinct MI210": Properties((9, 0), 104, 64, 68_702_699_520),
    "AMD Instinct MI300X": Properties((9, 4), 304, 64, 206_141_652_992),
    "AMD Instinct MI325X": Properties((9, 4), 304, 64, 274_877_906_944),
    "NVIDIA B300": Properties((10, 3), 148, 32, 287_431_131_136),
}
"""As the headers of recorded traces have them."""


@pytest.mark.parametrize("name", AS_DRIVERS_TELL)
def test_a_gpu_without_a_name_is_the_one_with_its_processors_warps_and_memory(name: str) -> None:
    found = device_by_properties(AS_DRIVERS_TELL[name])
    assert found is not None and found.name == name


@pytest.mark.parametrize(
    "other",
    [Properties(), Properties((9, 4), 304, 32, 206_141_652_992), Properties((9, 0), 132, 64, 150_109_880_320),
     Properties((9, 4), 228, 64, 137_438_953_472), Properties((9, 4), 304, 64),
     Properties((9, 5), 256, 64, 309_220_868_096), Properties((12, 0), 188, 32, 101_973_131_264)],
)  # fmt: skip
def test_properties_that_are_of_no_device_of_the_table_name_none(other: Properties) -> None:
    # In order: nothing told, a warp of 32, a warp of 64, an MI300A, no memory told, then two that have the same: MI350X
    # and MI355X, the editions of the RTX PRO 6000.
    assert device_by_properties(other) is None
