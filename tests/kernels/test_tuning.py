"""What tuning chooses, what it prunes before anything is compiled, and what it keeps on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernels import tuning
from kernels.ops.vector_add import vector_add_kernel
from kernels.tuning import Limits, Tuner, Variant, fitting
from kernels.tuning_cache import VARIABLE, Tuned, TunedFile

TIMES = {1024: 30.0, 2048: 10.0, 4096: 20.0}
SPACE = [Variant(vector_add_kernel, (("BLOCK", b),), 4) for b in TIMES]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(block, address of the first argument) of every launch; the clock says what TIMES says."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    seen: list[tuple[int, int]] = []

    def timed(call: object) -> float:
        assert callable(call)
        call()
        return TIMES[seen[-1][0]]

    monkeypatch.setattr(tuning, "cold_us", timed)
    return seen


def pick(tuner: Tuner, seen: list[tuple[int, int]], x: torch.Tensor, key: object = (7,)) -> Variant:
    def launch(variant: Variant, tensor: torch.Tensor) -> None:
        seen.append((variant["BLOCK"], tensor.data_ptr()))
        tensor.zero_()

    return tuner.pick(key, SPACE, launch, x)


def test_the_fastest_is_chosen_once_and_the_callers_tensor_is_left_alone(launched: list[tuple[int, int]]) -> None:
    tuner, x = Tuner("test"), torch.ones(8)
    assert pick(tuner, launched, x)["BLOCK"] == 2048
    assert pick(tuner, launched, x)["BLOCK"] == 2048
    assert [b for b, _ in launched] == list(TIMES)
    assert all(address != x.data_ptr() for _, address in launched)
    assert torch.equal(x, torch.ones(8))


def test_what_a_launcher_only_reads_is_not_copied_and_what_it_is_given_twice_once(
    launched: list[tuple[int, int]],
) -> None:
    read, written = torch.ones(8), torch.ones(8)
    places: list[tuple[int, ...]] = []

    def launch(variant: Variant, *tensors: torch.Tensor) -> None:
        launched.append((variant["BLOCK"], 0))
        places.append(tuple(t.data_ptr() for t in tensors))

    Tuner("test").pick((7,), SPACE, launch, read, written, written, uncopied=(read,))
    assert len(places) == len(SPACE)
    for first, second, third in places:
        assert first == read.data_ptr()
        assert second == third != written.data_ptr()


def test_another_process_takes_the_choice_from_disk(launched: list[tuple[int, int]], tmp_path: Path) -> None:
    pick(Tuner("test"), launched, torch.ones(8), (1000, torch.float32))
    launched.clear()
    assert pick(Tuner("test"), launched, torch.ones(8), (900, torch.float32))["BLOCK"] == 2048  # the same bucket
    assert launched == []
    pick(Tuner("test"), launched, torch.ones(8), (5000, torch.float32))
    assert launched != []
    (file,) = tmp_path.rglob("test.json")
    assert {entry["time_us"] for entry in json.loads(file.read_text()).values()} == {10.0}


def test_a_choice_of_another_text_of_the_kernel_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    cpu = torch.device("cpu")
    TunedFile("test", cpu, "rows@old").put("k", Tuned("a", 1.0, 0.1))
    assert TunedFile("test", cpu, "rows@new").get("k") is None
    TunedFile("test", cpu, "rows@new").put("j", Tuned("b", 2.0, 0.1))
    assert TunedFile("test", cpu, "rows@new").get("j") == Tuned("b", 2.0, 0.1)
    assert TunedFile("test", cpu, "rows@old").get("k") is None


def test_kernels_that_share_a_file_do_not_drive_each_other_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    cpu = torch.device("cpu")
    for names in ("forward@1", "backward@1", "forward+split@1"):
        TunedFile("test", cpu, names).put("k", Tuned(names, 1.0, 0.1))
    for names in ("forward@1", "backward@1", "forward+split@1"):
        assert TunedFile("test", cpu, names).get("k") == Tuned(names, 1.0, 0.1)


def test_the_copy_that_is_tuned_on_lies_as_the_argument_does() -> None:
    wide = torch.arange(60.0).view(3, 20)
    for given in (wide[0].expand(5, 20), wide[:, 3:11], wide.t(), wide[:, 1::2], wide[2:, 5], torch.empty(0, 3)):
        copied = tuning.copied(given)
        assert torch.equal(copied, given)
        assert copied.stride() == given.stride()
        assert copied.numel() == 0 or copied.data_ptr() != given.data_ptr()
        assert copied.numel() == 0 or copied.data_ptr() % 16 == given.data_ptr() % 16


def test_what_wants_a_gradient_is_refused_and_not_cut_off() -> None:
    with pytest.raises(RuntimeError, match="no_grad"):
        tuning.placed((torch.ones(3, requires_grad=True),))
    with torch.no_grad():
        assert tuning.placed((torch.ones(3, requires_grad=True),)) == torch.device("cpu")


def test_tensors_on_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="one device"):
        tuning.placed((torch.ones(3), torch.ones(3, device="meta")))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"new k": 3}', '{"new k": {"choice": "a"}}'])
def test_a_broken_file_counts_as_empty(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    file = TunedFile("test", torch.device("cpu"), "new")
    file.put("k", Tuned("a", 1.0, 0.1))
    (path,) = tmp_path.rglob("test.json")
    path.write_text(text)
    assert file.get("k") is None
    file.put("k", Tuned("a", 1.0, 0.1))
    assert file.get("k") == Tuned("a", 1.0, 0.1)


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_memory(
    launched: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for where in (str(blocked), ""):
        monkeypatch.setenv(VARIABLE, where)
        assert pick(Tuner("test"), launched, torch.ones(8))["BLOCK"] == 2048


@pytest.mark.parametrize("words", ["PassManager::run failed", "too many blocks in cooperative launch"])
def test_a_variant_that_the_compiler_gives_up_on_costs_the_others_nothing(
    words: str, launched: list[tuple[int, int]]
) -> None:
    def launch(variant: Variant, tensor: torch.Tensor) -> None:
        if variant["BLOCK"] == 2048:
            raise RuntimeError(words)
        launched.append((variant["BLOCK"], tensor.data_ptr()))

    def faulting(variant: Variant, tensor: torch.Tensor) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert Tuner("test").pick((7,), SPACE, launch, torch.ones(8))["BLOCK"] == 4096
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Tuner("faulting").pick((8,), SPACE, faulting, torch.ones(8))


def test_what_cannot_fit_is_not_tried() -> None:
    def variant(shared_bytes: int, registers: int, warps: int) -> Variant:
        return Variant(vector_add_kernel, (("BLOCK", 1024),), warps, shared_bytes=shared_bytes, registers=registers)

    limits = Limits(shared_bytes=100_000, registers=255, file=65536)
    good = [variant(100_000, 128, 16), variant(0, 255, 8)]
    bad = [variant(100_001, 0, 4), variant(0, 256, 4), variant(0, 129, 16)]
    assert fitting([*bad, *good], limits) == good
    assert fitting(bad, limits) == bad, "a wrong model must not leave nothing to run"
