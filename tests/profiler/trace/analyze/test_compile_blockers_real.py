"""What would stop torch.compile in real traces: everything that is found in them, worked out by reading their JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.compile_blockers import CompileBlocker, compile_blockers_of_region, find_compile_blockers
from profiler.trace.read.frames import open_frames
from tests.profiler.trace.files import TRACES, loaded, real, written

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


def of_trace(name: str) -> tuple[CompileBlocker, ...]:
    trace = real(name)
    return find_compile_blockers(trace, trace.steps)


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
    [blocker] = of_trace("pyg_gcn_gat_train_fp32.json.gz")
    assert blocker.calls_per_step == len(copies) / steps == 2
    assert blocker.operands == ("i64[2, 4000000]",)


def test_custom_operations_are_counted_as_the_trace_has_them():
    events = loaded("tl_sglang_prefilldecode.json.gz")["traceEvents"]
    calls = sum(e["name"] == "sgl_kernel::silu_and_mul" and e.get("cat") == "cpu_op" for e in events)
    [found] = [o for o in of_trace("tl_sglang_prefilldecode.json.gz") if o.op == "sgl_kernel::silu_and_mul"]
    assert found.calls_per_step == calls == 36
    assert len(found.modules) == 36 and all(m.endswith(f"/SiluAndMul_{i}") for i, m in enumerate(found.modules))
    assert 'register_fake("sgl_kernel::silu_and_mul")' in found.remedy


def test_sizes_that_change_are_listed_without_the_weight():
    [blocker] = of_trace("bert_train_varlen_fp16_eager.json.gz")
    events = loaded("bert_train_varlen_fp16_eager.json.gz")["traceEvents"]
    words = {
        str(e["args"]["Input Dims"][1]) for e in events if e["name"] == "aten::embedding" and e.get("cat") == "cpu_op"
    }
    assert set(blocker.operands) == {text for text in words if text.startswith("[16, ")} and len(blocker.operands) == 6
    assert blocker.effect == "recompile" and blocker.because.startswith("6 different sizes in 6 steps")


def test_the_caller_is_the_models_own_function():
    trace = real("tl_h100_bert_small.json.gz")
    [blocker] = find_compile_blockers(trace, trace.steps)
    assert blocker.modules == ("BertLMHeadModel_0/BertModel_0",)
    where = open_frames(TRACES / "tl_h100_bert_small.json.gz", trace, blocker.at)
    assert [frame.innermost for frame in where] == [
        "transformers/modeling_attn_mask_utils.py:429 _prepare_4d_attention_mask_for_sdpa"
    ]


def test_without_stacks_there_is_no_caller():
    trace = real("pyg_gcn_gat_train_fp32.json.gz")
    assert [f.stack for f in open_frames(TRACES / "pyg_gcn_gat_train_fp32.json.gz", trace, [(0, 1.0)])] == [()]


# --- a model with eleven obstacles planted in it, recorded on an H200 with torch 2.11 (thinned: one step, short LSTM)

PLANTED = Path(__file__).parents[1] / "data" / "planted_obstacles.json.gz"
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
    blockers = find_compile_blockers(trace, trace.steps)
    assert sorted((o.kind, o.op) for o in blockers) == sorted(
        [*IN_IT.items(), ("data-dependent-size", "aten::_unique2")]
    )
    assert all(o.calls_per_step == 1.0 and o.within == within for o in blockers)
    if within == "module":
        assert {m for o in blockers for m in o.modules} == {"Net_0", "Net_0/LSTM_0"}
        asked = [at for o in blockers for at in o.at]
        assert {f.innermost for f in open_frames(path, trace, asked)} == {"planted.py:13 forward"}


# --- of one region


def test_inside_a_region_is_what_lies_between_its_operations():
    obstacle = of_trace("llama_decode_bf16_eager.json.gz")[0]
    thread, first = obstacle.at[0]
    [inside] = compile_blockers_of_region([obstacle], [(thread, first - 10, first + 10)], "")
    assert inside.inside and inside.calls_per_step == 1.0
    assert compile_blockers_of_region([obstacle], [(thread, first + 1, first + 2)], "") == ()
    assert compile_blockers_of_region([obstacle], [(thread + 1, first - 10, first + 10)], "") == ()


def test_in_a_regions_module_concerns_it_and_elsewhere_does_not():
    [obstacle] = of_trace("tl_h100_bert_small.json.gz")
    [blocker] = compile_blockers_of_region([obstacle], [], "BertLMHeadModel_0/BertModel_0")
    assert not blocker.inside
    assert compile_blockers_of_region([obstacle], [], "BertLMHeadModel_0/BertModel_0/BertEncoder_0") == ()
    assert compile_blockers_of_region([obstacle], [], "") == ()
