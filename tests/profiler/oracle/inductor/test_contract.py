"""One test for each piece of private API that the oracle leans on: when one fails, that is what has moved.

The oracle itself then answers "prediction unavailable"; these say why.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from pathlib import Path

import pytest
import torch
import triton
from torch._inductor import pattern_matcher, select_algorithm
from torch._inductor.fx_passes import fuse_attention, joint_graph, pad_mm
from torch._inductor.graph import GraphLowering

from profiler.oracle.inductor import fake_gpu, pipeline, training
from profiler.oracle.inductor.attention import ATTENTION, whole_attention
from profiler.oracle.model import Operand
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.profiler.oracle.asking import EVEN, EXAMPLE, TRAINED, UNEVEN, device


def wrote(text: str, mode: str = "default") -> pipeline.InductorOutput:
    return pipeline.ask(parse(text), None, device(), mode)


def test_the_table_of_device_guards_is_where_it_was() -> None:
    if torch.version.cuda:
        assert hasattr(torch._C, "_ensureCUDADeviceGuardSet")
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    slots = (ctypes.c_void_p * fake_gpu.GUARD_SLOTS).in_dll(library, fake_gpu.REGISTRY)
    assert slots[fake_gpu.META_SLOT], "the meta device has a guard to lend"


def test_a_fake_cuda_tensor_can_be_made_contiguous_without_a_gpu() -> None:
    text = "x: f32[8, 16]\nreturn x.T.contiguous()\n"
    with fake_gpu.fake_gpu(device()):
        built = program(parse(text), None, fake_gpu.DEVICE)
    assert built.outputs[0].device == torch.device("cuda:0") and built.outputs[0].is_contiguous()


def test_everything_that_torch_is_told_about_the_gpu_still_has_its_place() -> None:
    for name in fake_gpu._answers(device()):
        assert hasattr(torch.cuda, name), name
    interface = torch._dynamo.device_interface.CudaInterface
    for name in ("get_compute_capability", "is_triton_capable", "exchange_device", "get_device_properties"):
        assert hasattr(interface, name), name


def test_nothing_of_the_fake_gpu_stays() -> None:
    before = {n: getattr(torch.cuda, n) for n in fake_gpu._answers(device())}
    driver = triton.runtime.driver._active
    wrote(EXAMPLE)
    assert {n: getattr(torch.cuda, n) for n in before} == before
    assert triton.runtime.driver._active is driver
    assert torch.cuda.is_available() is False or torch.version.cuda is not None


def test_inductor_hands_over_its_text() -> None:
    kept = wrote(EXAMPLE)
    assert [w.stage for w in kept.texts] == ["forward"]
    text = kept.texts[0].text
    assert "async_compile.triton(" in text and "def call(" in text and "Original ATen: [" in text
    assert list(inspect.signature(GraphLowering.codegen).parameters) == ["self"]


def test_inductor_counts_the_bytes_of_each_kernel_it_defines() -> None:
    # 8192 x 16384 bf16, three times: product, mask, result; and the bias
    assert list(wrote(EXAMPLE).bytes_moved.values()) == [3 * 8192 * 16384 * 2 + 16384 * 2]


def test_each_buffer_of_a_graph_says_how_it_is_laid_out() -> None:
    (wrapper,) = wrote(EXAMPLE).texts
    assert set(re.findall(r"\b(?:buf|arg)\d+(?:_1)?\b", wrapper.text)) <= set(wrapper.tensors)
    assert wrapper.tensors["arg1_1"] == (Operand("bf16", (4096, 16384), (16384, 1)),)


def test_the_layout_of_a_convolutions_result_is_asked_of_the_function_that_answers_for_it() -> None:
    assert hasattr(torch._C, "_conv_determine_backend_memory_format")
    image = "x: f32[8, 16, 20, 20]{}\nw: f32[32, 16, 3, 3]\nreturn F.conv2d(x, w)\n"
    for layout, expected in (("", torch.contiguous_format), (".channels_last", torch.channels_last)):
        with fake_gpu.fake_gpu(device()):
            built = program(parse(image.format(layout)), None, fake_gpu.DEVICE)
        assert built.outputs[0].is_contiguous(memory_format=expected)
        doubled = image.format(layout).replace("f32", "f64")
        with fake_gpu.fake_gpu(device()):
            built = program(parse(doubled), None, fake_gpu.DEVICE)
        assert built.outputs[0].is_contiguous(), "cuDNN computes f64 in the order that it is given"


def test_the_patterns_are_registered_by_a_function_that_takes_at_most_a_device() -> None:
    assert list(inspect.signature(joint_graph.lazy_init).parameters) in ([], ["input_device"])
    assert fuse_attention.joint_fwd_bwd is pattern_matcher.joint_fwd_bwd


def test_attention_by_hand_is_counted_when_it_is_replaced() -> None:
    q, k, v = (f"{n}: bf16[2, 4, 512, 64]\n" for n in "qkv")
    kept = wrote(q + k + v + "return softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v\n")
    assert kept.counts["fuse_attention"] > 0
    assert "_scaled_dot_product_flash_attention" in kept.texts[0].text


def test_attention_dispatches_to_one_call() -> None:
    before = dict(ATTENTION.py_kernels)
    with whole_attention():
        assert len(ATTENTION.py_kernels) >= len(before)
    assert ATTENTION.py_kernels == before


def test_padding_is_asked_of_the_function_that_answers_for_it() -> None:
    assert list(inspect.signature(pad_mm.should_pad_bench_key).parameters)[:3] == ["match", "mat1", "mat2"]
    assert callable(pad_mm.get_cached_should_pad)
    assert wrote(UNEVEN).assumed == [pipeline.PADDED]
    assert wrote(EVEN.replace("4096, 1024", "4095, 1024")).assumed == [pipeline.UNPADDED]
    assert wrote(EVEN).assumed == []


def test_autotuning_is_asked_of_the_functions_that_answer_for_it() -> None:
    assert hasattr(select_algorithm.AlgorithmSelectorCache, "make_precompile_fn")
    kept = wrote(EVEN, "max-autotune")
    assert kept.assumed == [pipeline.TEMPLATES]
    assert "triton_tem_fused" in kept.texts[0].text and "extern_kernels.mm" not in kept.texts[0].text


def test_decompositions_for_training_compare_the_device_with_a_constant() -> None:
    for function in training._asking():
        assert "cpu" in str(function.__code__.co_consts), function


def test_decompositions_are_as_before_afterwards() -> None:
    before = {f: f.__code__ for f in training._asking()}
    wrote(TRAINED)
    assert {f: f.__code__ for f in before} == before


def test_training_gives_a_forward_and_a_backward_text() -> None:
    assert [w.stage for w in wrote(TRAINED).texts] == ["forward", "backward"]


@pytest.mark.parametrize("arch", ["NVIDIA A100", "NVIDIA H100", "NVIDIA B200", "NVIDIA L4"])
def test_devices_of_every_generation_can_be_imitated(arch: str) -> None:
    with fake_gpu.fake_gpu(device(arch)):
        told = torch.cuda.get_device_properties(0)
    assert told.multi_processor_count == device(arch).processors


def test_a_real_compile_still_works_after_the_oracle() -> None:
    wrote(EXAMPLE)
    compiled = torch.compile(lambda x: (x + 1).sum(), backend="aot_eager")
    assert compiled(torch.ones(8)).item() == 16.0
