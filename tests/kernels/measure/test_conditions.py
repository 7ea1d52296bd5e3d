"""Reading nvidia-smi's own words, and what a reader is warned of."""

from __future__ import annotations

from kernels.measure import conditions


def test_a_row_of_nvidia_smi():
    # as an NVIDIA H200 answered, with the fields of QUERY
    answer = conditions.smi_row("1980, 3201, 1980, 41, 312.55, 700.00, 2210, 0x0000000000000004")
    assert answer == {
        "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "sm_clock_max_mhz": 1980, "temperature_c": 41,
        "power_w": 312.55, "power_limit_w": 700, "memory_used_mib": 2210, "throttle": ["power cap"],
    }  # fmt: skip


def test_what_the_card_does_not_tell_is_left_out():
    answer = conditions.smi_row("1980, [N/A], [Not Supported], 41, [N/A], 700.00, 2210, 0x1")
    assert set(answer) == {"sm_clock_mhz", "temperature_c", "power_limit_w", "memory_used_mib", "throttle"}
    assert answer["throttle"] == []  # idle is no throttling


def test_warnings():
    calm = {"sm_clock_mhz": 1980, "sm_clock_max_mhz": 1980, "throttle": [], "other_processes": 0}
    assert conditions.warnings(calm, calm) == []
    hot = calm | {"throttle": ["thermal (hardware)"], "sm_clock_mhz": 1200, "other_processes": 2}
    found = " ".join(conditions.warnings(calm, hot))
    assert "thermal" in found
    assert "1200 of 1980" in found
    assert "2 other processes" in found


def test_a_host_without_a_gpu_answers_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert conditions.read() == {}


def test_hidden_gpus_count_as_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not conditions.gpu_present()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert conditions._physical(1) == 5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, GPU-1fa")
    assert conditions._physical(1) == "GPU-1fa"
