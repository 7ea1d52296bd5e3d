"""What stands round the model: optimizers, loops over parameters, caches, experts' rows, launches, many GPUs.

Torch-free.
"""

from __future__ import annotations

from kernels.libraries.conditions import FLOATS, HALF, compiled, one_dtype
from kernels.libraries.model import Condition, Entry, Operation

ADAM, FOREACH = frozenset({"optimizer"}), frozenset({"foreach"})
CACHE, PERMUTE, LAUNCHES = frozenset({"kv_append"}), frozenset({"moe_permute"}), frozenset({"launch_bound"})
ONE_GPU = "a region runs on one GPU: no collectives"

OPERATIONS: tuple[Operation, ...] = (
    Operation(68, "a step of Adam, AdamW, SGD, Adagrad", "Y", ADAM),
    Operation(69, "loops over tensors: clip, moving average, zero", "Y", FOREACH),
    Operation(70, "NCCL collectives", "skip", inexpressible=ONE_GPU, note="NCCL"),
    Operation(71, "all-reduce, residual, rms_norm", "Y", inexpressible=ONE_GPU,
              note="flashinfer.comm, torch.distributed._symmetric_memory; small messages over NVLink"),
    Operation(72, "all-gather and mm, mm and reduce-scatter", "Y*", inexpressible=ONE_GPU,
              note="torch.ops.symm_mem.fused_all_gather_matmul, sm_90 with NVLink"),
    Operation(73, "KV-cache append", "Y", CACHE),
    Operation(74, "rows in the order of their experts", "Y*", PERMUTE),
    Operation(75, "many small launches", "C", LAUNCHES),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.optim.fused", "torch", ADAM, "torch.optim.AdamW(parameters, fused=True)",
        (one_dtype("p", "g", "m", "v"),), (68,), dtypes=FLOATS, feature="aten._fused_adamw_", since="2.0",
        unmeasured="it works in place, and a region leaves its inputs as they are: copies would be timed with it",
        gives_up="parameters and states in place", note="One kernel for all parameters.", source="torch documentation",
        targets=frozenset({"_fused_adam_", "_fused_adamw_", "_fused_sgd_"}),
    ),
    Entry(
        "library:torch._foreach", "torch", FOREACH, "torch._foreach_{call}(tensors, ...)",
        (), (69,), dtypes=FLOATS, since="2.0",
        unmeasured="takes lists, and gives its results in place where it is used",
        note="Few launches for all tensors; clip_grad_norm_(foreach=True) is one of them.",
        source="torch documentation",
    ),
    Entry(
        "library:flashinfer.append_paged_kv_cache", "flashinfer", CACHE,
        "flashinfer.append_paged_kv_cache({values}, ...)", (), (73,), (7, 5), HALF, True,
        unmeasured="it works in place, and a region leaves its inputs as they are", gives_up="the cache in place",
        source="flashinfer fb28d724",
    ),
    Entry(
        "library:vllm.reshape_and_cache_flash", "vllm", CACHE, "vllm ops.reshape_and_cache_flash(...)", (), (73,), (7,
        0),
        HALF, True, unmeasured="it works in place, and a region leaves its inputs as they are",
        gives_up="the cache in place", source="vllm reshape_and_cache_flash",
    ),
    Entry(
        "library:flag_gems.reshape_and_cache_flash", "flag_gems", CACHE, "flag_gems.reshape_and_cache_flash(...)", (),
        (73,), dtypes=HALF, forward_only=True,
        unmeasured="it works in place, and a region leaves its inputs as they are", gives_up="the cache in place",
        source="flag_gems 5.0.2",
    ),
    Entry(
        "library:vllm.moe_align_block_size", "vllm", PERMUTE, "vllm moe_align_block_size({experts}, block, experts)",
        (),
        (74,), (7, 0), forward_only=True, unmeasured="gives the order, padded to blocks; the product reads through it",
        source="vllm moe_align_block_size",
    ),
    Entry(
        "library:transformer_engine.moe_permute", "transformer_engine", PERMUTE,
        "transformer_engine.pytorch.moe_permute({x}, {experts})", (), (74,), (8, 0), ("f32", "f16", "bf16"),
        unmeasured="built for one version of torch and CUDA", source="NVIDIA/TransformerEngine",
    ),
    compiled(
        LAUNCHES, 75, call='torch.compile(f, mode="reduce-overhead")',
        conditions=(Condition("sizes that stay the same", lambda f: not f.varies),),
        note="CUDA graphs; can be slower where inputs have to be copied in.", gives_up="inputs at fixed addresses",
        source="ianbarber/kernelbench-agents-vs-compile",
    ),
)  # fmt: skip
