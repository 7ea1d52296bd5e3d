"""What would stop torch.compile: found where a trace shows it, and nowhere else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.frames import callers
from profiler.trace.obstacle_kinds import KINDS
from profiler.trace.obstacles import Obstacle, beside, find_obstacles
from profiler.trace.windows import Windows
from tests.profiler.trace.files import TRACES, annotation, kernel, launch, loaded, op, real, written

Event = dict[str, object]


# --- real traces: everything that is found in them, worked out by reading their JSON (see the tests below the table)

FOUND: dict[str, dict[tuple[str, str], float]] = {
    # six steps, six sequence lengths; 212 .item() a step in AdamW, on numbers that are on the host
    "bert_train_varlen_fp16_eager.json.gz": {("many-shapes", "aten::embedding"): 1},
    "gpt2_train_autocast_eager.json.gz": {},
    "gpt2_train_autocast_eager_stack.json.gz": {},  # 152 .item() of the optimizer
    "handrolled_blocks_bf16_compiled.json.gz": {},
    "handrolled_blocks_bf16_cudagraph.json.gz": {},
    "handrolled_blocks_bf16_eager.json.gz": {},
    "handrolled_blocks_bf16_eager_stack.json.gz": {},
    "handrolled_blocks_noshapes.json.gz": {},
    "hta_alexnet.json.gz": {},  # copies and waits stand between the forwards
    "hta_cpu_only.json.gz": {},
    "hta_cupti_profiler.json.gz": {},
    "hta_event_sync_multistream.json.gz": {},
    "hta_mi250_minitoy.json.gz": {},
    "hta_nccl.json.gz": {},  # DistributedDataParallel broadcasts buffers: round the model, not in it
    "hta_rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz": {},
    "hta_step_based_trace_2543932.json.gz": {},
    "hta_triton_example.json.gz": {},
    "kineto_docs_before_fix.json": {},
    "kineto_resnet50_workers0.json.gz": {},
    # 8 tokens: one `if` on the mask in each forward; 11 more in generate() round them are not the model's
    "llama_decode_bf16_eager.json.gz": {("tensor-branch", "aten::is_nonzero"): 8, ("growing-shapes", "aten::cat"): 112},
    "llama_eager_attention_prefill.json.gz": {},  # its one copy is torch.tensor(0.0, device="cuda")
    "llama_prefill_bf16_compiled.json.gz": {},
    "llama_prefill_bf16_eager.json.gz": {},
    "llama_prefill_bf16_eager_stack.json.gz": {},
    "llama_train_bf16_eager.json.gz": {},
    "mixtral_prefill_bf16_eager.json.gz": {},  # histc, topk, index by whole numbers: sizes are fixed
    "param_resnet_kineto.json.gz": {},
    "pyg_gcn_gat_train_fp32.json.gz": {("data-dependent-size", "aten::index"): 2},  # self-loops dropped, in both layers
    "t5_train_autocast_eager.json.gz": {},
    "timm_convnext_train_channels_last.json.gz": {},
    "timm_resnet50_train_fp32.json.gz": {},
    "timm_vit_base_bf16_eager.json.gz": {},
    "tl_h100_bert_small.json.gz": {("tensor-branch", "aten::is_nonzero"): 1},
    # the 55 copies to the host, 20 nonzero and the DataLoader's .item() are the pipeline's, not the model's
    "tl_h100_owlv2.json.gz": {("copy-from-host", "aten::to"): 5},
    "tl_h100_qwen15.json.gz": {("tensor-branch", "aten::is_nonzero"): 1},
    "tl_h100_timesformer.json.gz": {},
    "tl_mi210_gpu_only.json.gz": {},
    "tl_mi300_resnet_actckpt.json.gz": {},
    "tl_moe_01_many_experts_few_tokens.json.gz": {},
    "tl_nv_attn_05_slow_flash_gqa.json": {},
    "tl_sglang_prefilldecode.json.gz": {
        ("custom-op", "aiter::gemm_a16w16"): 144,
        ("custom-op", "sglang_profiler::rmsnorm_rmsnorm2d_fwd_with_add"): 72,
        ("custom-op", "sglang_profiler::rmsnorm_rmsnorm2d_fwd"): 1,
        ("custom-op", "sgl_kernel::rotary_embedding"): 36,
        ("custom-op", "sgl_kernel::silu_and_mul"): 36,
        ("custom-op", "sglang_profiler::memory_pool__set_kv_buffer_impl"): 36,
        ("custom-op", "sglang_profiler::mha__mha_batch_prefill"): 36,
        ("custom-op", "sglang_profiler::utils_apply_qk_norm"): 36,
    },
    "tl_vllm_decode_full_capture.json.gz": {},
    "tl_vllm_decode_full_exec.json.gz": {("custom-op", "vllm::rocm_unquantized_gemm"): 1},
    # the scheduler's nonzero and .item() are outside of the models
    "tl_xdit_sd35_graph.json.gz": {("custom-op", "aiter::_groupnorm_run"): 30},
}


def of_trace(name: str) -> tuple[Obstacle, ...]:
    trace = real(name)
    return find_obstacles(trace, trace.steps)


@pytest.mark.parametrize("name", FOUND)
def test_every_real_trace_has_exactly_the_obstacles_that_its_events_show(name: str):
    found = {(o.kind, o.op): o.calls_per_step for o in of_trace(name)}
    assert found == {key: pytest.approx(calls) for key, calls in FOUND[name].items()}


def test_the_branches_of_a_decoding_loop_are_those_between_a_forwards_lookup_and_its_products():
    """An independent reading of the events: one `if` after each of the token embeddings, before the next product."""
    events = [e for e in loaded("llama_decode_bf16_eager.json.gz")["traceEvents"] if e.get("cat") == "cpu_op"]
    expected, looked_up = 0, False
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        if event["name"] == "aten::embedding":
            looked_up = True
        elif event["name"] in ("aten::matmul", "aten::linear"):
            looked_up = False
        elif event["name"] == "aten::is_nonzero" and looked_up:
            expected += 1
    [branch] = [o for o in of_trace("llama_decode_bf16_eager.json.gz") if o.kind == "tensor-branch"]
    assert branch.calls_per_step == expected == 8
    assert branch.effect == "break"
    assert "no stacks were recorded" in branch.because


def test_the_mask_indexing_of_a_graph_network_waits_for_its_count():
    events = loaded("pyg_gcn_gat_train_fp32.json.gz")["traceEvents"]
    copies = [e for e in events if "DtoH" in e["name"] and e.get("cat") == "gpu_memcpy"]
    steps = len({e["name"] for e in events if e["name"].startswith("ProfilerStep")})
    [found] = of_trace("pyg_gcn_gat_train_fp32.json.gz")
    assert found.calls_per_step == len(copies) / steps == 2
    assert found.operands == ("i64[2, 4000000]",)


def test_custom_operations_are_counted_as_the_trace_has_them():
    events = loaded("tl_sglang_prefilldecode.json.gz")["traceEvents"]
    calls = sum(e["name"] == "sgl_kernel::silu_and_mul" and e.get("cat") == "cpu_op" for e in events)
    [found] = [o for o in of_trace("tl_sglang_prefilldecode.json.gz") if o.op == "sgl_kernel::silu_and_mul"]
    assert found.calls_per_step == calls == 36
    assert len(found.modules) == 36 and all(m.endswith(f"/SiluAndMul_{i}") for i, m in enumerate(found.modules))
    assert 'register_fake("sgl_kernel::silu_and_mul")' in found.remedy


def test_sizes_that_change_are_listed_without_the_weight():
    [found] = of_trace("bert_train_varlen_fp16_eager.json.gz")
    events = loaded("bert_train_varlen_fp16_eager.json.gz")["traceEvents"]
    words = {
        str(e["args"]["Input Dims"][1]) for e in events if e["name"] == "aten::embedding" and e.get("cat") == "cpu_op"
    }
    assert set(found.operands) == {text for text in words if text.startswith("[16, ")} and len(found.operands) == 6
    assert found.effect == "recompile" and found.because.startswith("6 different sizes in 6 steps")


def test_the_caller_is_the_models_own_function():
    trace = real("tl_h100_bert_small.json.gz")
    [found] = find_obstacles(trace, trace.steps)
    assert found.modules == ("BertLMHeadModel_0/BertModel_0",)
    where = callers(TRACES / "tl_h100_bert_small.json.gz", trace, found.at)
    assert where == ["transformers/modeling_attn_mask_utils.py:429 _prepare_4d_attention_mask_for_sdpa"]


def test_without_stacks_there_is_no_caller():
    trace = real("pyg_gcn_gat_train_fp32.json.gz")
    assert callers(TRACES / "pyg_gcn_gat_train_fp32.json.gz", trace, [(0, 1.0)]) == [""]


# --- a model with eleven obstacles planted in it, recorded on an H200 with torch 2.11 (thinned: one step, short LSTM)

PLANTED = Path(__file__).parent / "data" / "planted_obstacles.json.gz"
"""Net.forward, in order: linear; x.abs().max().item(); if (x > 0).any(); x[x[:, 0] > 0]; torch.unique; a torch.library
operation; linear; torch.ones(256).to(device); torch.cuda.synchronize(); a kernel of a pybind extension; nn.LSTM;
x.mean().cpu(); a product of complex numbers; linear. Round it, and not to be found: inputs made on the host and
copied, loss.item() before and after backward, the accuracy's .item(), AdamW's own."""

IN_IT = {
    "scalar-read": "aten::item", "tensor-branch": "aten::is_nonzero", "data-dependent-size": "aten::index",
    "custom-op": "mylib::scale", "copy-from-host": "aten::to", "synchronise": "cudaDeviceSynchronize",
    "extension-call": "dblk", "recurrent": "aten::lstm", "copy-to-host": "aten::to", "complex": "aten::mul",
}  # fmt: skip


@pytest.mark.parametrize("within", ["module", "order"])
def test_what_was_planted_is_found_once_each_and_nothing_round_the_model(within: str, tmp_path: Path):
    document = json.loads(gzip.decompress(PLANTED.read_bytes()))
    if within == "order":
        document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] != "python_function"]
    path = written(tmp_path, json.dumps(document))
    trace = read_trace(path)
    found = find_obstacles(trace, trace.steps)
    assert sorted((o.kind, o.op) for o in found) == sorted([*IN_IT.items(), ("data-dependent-size", "aten::_unique2")])
    assert all(o.calls_per_step == 1.0 and o.within == within for o in found)
    if within == "module":
        assert {m for o in found for m in o.modules} == {"Net_0", "Net_0/LSTM_0"}
        asked = [at for o in found for at in o.at]
        assert callers(path, trace, asked) == ["planted.py:13 forward"] * len(asked)


# --- one small trace for every kind: a linear layer before, something, a linear layer after

WEIGHT, INPUT = [64, 64], [8, 64]
LINEAR = {"Input Dims": [INPUT, WEIGHT], "Input type": ["float", "float"]}


class Program:
    """Events of one thread, in order: each call takes 10 µs, and what lies under it is placed inside."""

    def __init__(self, start: float = 100.0) -> None:
        self.at, self.events, self.correlation = start, [], 0

    def call(
        self, name: str, *, kernels: int = 0, copy: str = "", under: Iterable[str] = (), **args: object
    ) -> Program:
        start = self.at
        self.events.append(op(name, start, 10, **args))
        inner = start
        for number, nested in enumerate(under):
            inner = start + 1 + number
            self.events.append(op(nested, inner, 8 - 2 * number))
        for _ in range(kernels):
            self._launched(inner + 0.5)
        if copy:
            self._launched(inner + 0.5, copy)
        self.at += 20
        return self

    def _launched(self, at: float, copy: str = "") -> None:
        self.correlation += 1
        self.events.append(launch(at, self.correlation, name="cudaMemcpyAsync" if copy else "cudaLaunchKernel"))
        made = kernel(at + 5, 2, self.correlation, name=copy or "void gemm(float*)")
        self.events.append(made | {"cat": "gpu_memcpy"} if copy else made)

    def linear(self, weight: int = 64) -> Program:
        dims = {"Input Dims": [INPUT, [weight, 64]], "Input type": ["float", "float"]}
        return self.call("aten::linear", kernels=1, **dims)

    def raw(self, *events: Event) -> Program:
        self.events += events
        self.at += 20
        return self


def found_in(tmp_path: Path, program: Program, *more: Event) -> tuple[Obstacle, ...]:
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": [*program.events, *more]})))
    return find_obstacles(trace, trace.steps)


TO_HOST, TO_GPU = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
READ = {"under": ["aten::_local_scalar_dense"], "copy": TO_HOST}

BETWEEN = {
    "scalar-read": ("aten::item", READ),
    "tensor-branch": ("aten::is_nonzero", {"under": ["aten::item", "aten::_local_scalar_dense"], "copy": TO_HOST}),
    "value-comparison": ("aten::equal", {"under": ["aten::item"], "copy": TO_HOST, "kernels": 1}),
    "data-dependent-size": ("aten::masked_select", {"under": ["aten::nonzero"], "copy": TO_HOST, "kernels": 2}),
    "custom-op": ("mylib::fused_thing", {"kernels": 1}),
    "quantised-packed": ("quantized::linear_dynamic", {}),
    "recurrent": ("aten::lstm", {"under": ["aten::_cudnn_rnn"], "kernels": 3}),
    "torchscript": ("<forward op>", {"kernels": 1}),
    "sparse": ("aten::_sparse_mm", {"kernels": 1}),
    "complex": ("aten::mul", {"kernels": 1, "Input Dims": [[8, 32]], "Input type": ["c10::complex<float>"]}),
    "resize": ("aten::resize_", {}),
    "communication": ("c10d::allreduce_", {"kernels": 1}),
    "copy-to-host": ("aten::to", {"under": ["aten::_to_copy", "aten::copy_"], "copy": TO_HOST}),
    "copy-from-host": ("aten::to", {"under": ["aten::_to_copy", "aten::copy_"], "copy": TO_GPU}),
    "view-written": (
        "aten::copy_",
        {"kernels": 1, "Input Dims": [[8, 4], [8, 4]], "Input Strides": [[64, 1], [4, 1]], "Input type": ["float"] * 2},
    ),
}


@pytest.mark.parametrize("kind", BETWEEN)
def test_each_kind_is_named_between_two_layers(kind: str, tmp_path: Path):
    name, how = BETWEEN[kind]
    [found] = found_in(tmp_path, Program().linear().call(name, **how).linear(32))
    assert (found.kind, found.op, found.calls_per_step, found.within) == (kind, name, 1.0, "order")
    assert (found.effect, found.title) == (KINDS[kind].effect, KINDS[kind].title)


@pytest.mark.parametrize("kind", sorted(BETWEEN.keys() - {"custom-op", "recurrent"}))  # those may be its last layer
def test_none_is_the_models_behind_its_last_layer(kind: str, tmp_path: Path):
    """Loss, metrics, logging: what follows the model is not compiled with it."""
    name, how = BETWEEN[kind]
    program = Program().linear().linear(32)
    assert found_in(tmp_path, program.call(name, **how)) == ()


MASK_WRITE = {"under": ["aten::_index_put_impl_", "aten::nonzero"], "copy": TO_HOST, "kernels": 3}
WHOLE = {"kernels": 1, "Input Dims": [[8, 4], [8, 4], []], "Input Strides": [[4, 1], [4, 1], []]}
NO_OBSTACLE = {
    "a number on the host": ("aten::item", {"under": ["aten::_local_scalar_dense"]}),
    "x[mask] = 0": ("aten::index_put_", MASK_WRITE),
    "an index by whole numbers": ("aten::index", {"kernels": 1}),
    "repeat_interleave with output_size": ("aten::repeat_interleave", {"kernels": 1}),
    "nonzero of a tensor on the host": ("aten::nonzero", {}),
    "a copy from pinned memory": ("aten::to", {"copy": PINNED}),
    "a write into a whole tensor": ("aten::masked_fill_", WHOLE),
    "semi-structured weights": ("aten::_sparse_semi_structured_linear", {"kernels": 1}),
    "a custom operation on the host": ("mylib::tokenise", {}),
    "a histogram between bounds": ("aten::histc", {"kernels": 1}),
}


@pytest.mark.parametrize("case", NO_OBSTACLE)
def test_what_torch_compile_takes_is_no_obstacle(case: str, tmp_path: Path):
    name, how = NO_OBSTACLE[case]
    assert found_in(tmp_path, Program().linear().call(name, **how).linear(32)) == ()


def test_a_constant_made_on_the_gpu_is_no_copy_from_the_host(tmp_path: Path):
    program = Program().linear().call("aten::to", copy=TO_GPU).call("aten::lift_fresh").linear(32)
    assert found_in(tmp_path, program) == ()


@pytest.mark.parametrize("marker", ["Optimizer.step#SGD.step", "enumerate(DataLoader)#_Iter.__next__"])
def test_optimizer_and_data_loader_are_not_the_model(marker: str, tmp_path: Path):
    program = Program().linear().linear(32)
    at = program.at
    program.call("aten::item", **READ).linear().linear(32)
    assert found_in(tmp_path, program, annotation(marker, at - 2, 14)) == ()


def test_backward_is_not_looked_at(tmp_path: Path):
    program = Program().linear()
    node = op("autograd::engine::evaluate_function: FooBackward0", program.at - 2, 16)
    program.call("mylib::fused_thing", kernels=1).linear(32)
    assert found_in(tmp_path, program, node) == ()


def test_the_loop_round_a_model_is_not_the_model(tmp_path: Path):
    """Two passes: the `if` between them stands before the first layer comes again."""
    program = Program()
    for _ in range(2):
        program.linear(100).linear(32).call("aten::is_nonzero", under=["aten::item"], copy=TO_HOST)
    assert found_in(tmp_path, program) == ()


def test_equal_layers_are_one_pass(tmp_path: Path):
    program = Program().linear().linear().call("aten::item", **READ).linear().linear()
    assert [o.kind for o in found_in(tmp_path, program)] == ["scalar-read"]


def module(name: str, start: float, duration: float) -> Event:
    frame = {"ph": "X", "cat": "python_function", "name": f"nn.Module: {name}", "pid": 1, "tid": 1, "args": {}}
    return frame | {"ts": start, "dur": duration}


def test_modules_decide_where_they_are_recorded(tmp_path: Path):
    """Read in Net's forward, though no layer precedes it; not behind Net, nor in a metric that is a module."""
    program = Program().call("aten::item", **READ).linear().linear(32)
    net = module("Net_0", 95, program.at - 100)
    program.call("aten::item", **READ)
    metric = module("Accuracy_0", program.at - 1, 12)
    program.call("aten::item", **READ)
    [found] = found_in(tmp_path, program, net, metric)
    assert (found.within, found.modules, found.calls_per_step) == ("module", ("Net_0",), 1.0)


def test_an_annotation_of_the_forward_decides_where_there_are_no_modules(tmp_path: Path):
    program = Program().linear().call("aten::item", **READ).linear(32)
    forward = annotation("## forward ##", 99, program.at - 99)
    program.call("aten::item", **READ).linear()
    [found] = found_in(tmp_path, program, forward)
    assert (found.within, found.calls_per_step) == ("annotation", 1.0)


def test_calls_are_counted_by_step(tmp_path: Path):
    program, steps = Program(), []
    for number in range(3):
        start = program.at - 1
        program.linear(100).call("aten::item", **READ).call("aten::item", **READ).linear(32)
        steps.append(annotation(f"ProfilerStep#{number}", start, program.at - start - 1))
    [found] = found_in(tmp_path, program, *steps)
    assert found.calls_per_step == 2.0 and len(found.at) == 6


def test_a_wait_and_a_kernel_without_operation_are_seen_between_layers_only(tmp_path: Path):
    program = Program().linear()
    wait = launch(program.at, 90, name="cudaDeviceSynchronize")
    program.raw(wait, launch(program.at + 5, 91), kernel(program.at + 9, 3, 91, name="void mine::attention<8>(float*)"))
    program.linear(32)
    program.raw(launch(program.at, 92, name="cudaDeviceSynchronize"))  # the profiler's own, at the end
    found = {(o.kind, o.op): o.calls_per_step for o in found_in(tmp_path, program)}
    assert found == {("extension-call", "mine::attention"): 1.0, ("synchronise", "cudaDeviceSynchronize"): 1.0}


def test_a_triton_kernel_launched_by_hand_is_no_obstacle(tmp_path: Path):
    program = Program().linear()
    program.raw(launch(program.at, 91), kernel(program.at + 4, 3, 91, name="_rms_norm_fwd")).linear(32)
    assert found_in(tmp_path, program) == ()


def test_a_wait_inside_an_operation_is_the_operations_own(tmp_path: Path):
    program = Program().linear()
    inside = launch(program.at + 3, 90, name="cudaStreamSynchronize")
    program.call("aten::item", **READ).linear(32)
    assert [o.kind for o in found_in(tmp_path, program, inside)] == ["scalar-read"]


def test_a_compiled_frame_inside_another_is_a_graph_break_and_variants_are_recompilations(tmp_path: Path):
    regions = [
        op("Torch-Compiled Region: 0/0", 100, 90),
        op("aten::mul", 105, 5),  # compiled by a backend that runs aten operations
        op("aten::is_nonzero", 120, 10),
        op("TorchDynamo Cache Lookup", 135, 1),
        op("Torch-Compiled Region: 1/0", 140, 40),
        op("Torch-Compiled Region: 0/1", 200, 50),
    ]
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": regions})))
    found = {o.kind: o for o in find_obstacles(trace, trace.steps)}
    assert set(found) == {"compiled-in-parts", "recompiled"}
    assert found["compiled-in-parts"].op == "aten::is_nonzero"
    assert found["compiled-in-parts"].because.startswith("frame 1 inside frame 0")
    assert found["recompiled"].because.startswith("frame 0 in 2 variants")


def test_two_compiled_functions_side_by_side_are_no_graph_break(tmp_path: Path):
    regions = [op("Torch-Compiled Region: 0/0", 100, 50), op("Torch-Compiled Region: 1/0", 160, 50)]
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": regions})))
    assert find_obstacles(trace, trace.steps) == ()


def test_other_layers_of_other_sizes_are_not_many_shapes(tmp_path: Path):
    program, steps = Program(), []
    for number in range(4):
        start = program.at - 1
        program.linear(100).linear(90).linear(80).linear(70)
        steps.append(annotation(f"ProfilerStep#{number}", start, program.at - start - 1))
    assert found_in(tmp_path, program, *steps) == ()


# --- beside one region


def test_inside_a_region_is_what_lies_between_its_operations():
    obstacle = of_trace("llama_decode_bf16_eager.json.gz")[0]
    thread, first = obstacle.at[0]
    [inside] = beside([obstacle], [(thread, first - 10, first + 10)], "")
    assert inside.inside and inside.calls_per_step == 1.0
    assert beside([obstacle], [(thread, first + 1, first + 2)], "") == ()
    assert beside([obstacle], [(thread + 1, first - 10, first + 10)], "") == ()


def test_in_a_regions_module_is_beside_it_and_elsewhere_is_not():
    [obstacle] = of_trace("tl_h100_bert_small.json.gz")
    [found] = beside([obstacle], [], "BertLMHeadModel_0/BertModel_0")
    assert not found.inside
    assert beside([obstacle], [], "BertLMHeadModel_0/BertModel_0/BertEncoder_0") == ()
    assert beside([obstacle], [], "") == ()


def test_windows_that_nest_and_overlap():
    windows = Windows([(10, 50), (20, 30), (40, 60), (70, 80)])
    assert [at for at in range(0, 100, 5) if at in windows] == [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 70, 75]
    assert [windows.innermost(at) for at in (5, 25, 30, 45, 55, 60)] == [
        None, (20, 30), (10, 50), (40, 60), (40, 60), None,
    ]  # fmt: skip
    assert windows.starting_in(20, 70).spans == [(20, 30), (40, 60)]
