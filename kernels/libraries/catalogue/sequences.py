"""Along time: cumulative sums, recurrences, state-space models, causal convolutions. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import HALF, NO_DOUBLE, compiled, constant
from kernels.libraries.model import Condition, Entry, Operation

SCAN, RECURRENCE = frozenset({"scan"}), frozenset({"linear_recurrence"})
SSM, CAUSAL = frozenset({"selective_scan"}), frozenset({"causal_conv1d"})

ON_CUDA = Condition("a CUDA GPU: on others it runs step by step", lambda f: f.capability is not None)

OPERATIONS: tuple[Operation, ...] = (
    Operation(58, "cumsum, cumprod, logcumsumexp", "skip", SCAN),
    Operation(59, "an associative scan of one's own", "N*", RECURRENCE),
    Operation(60, "state-space model: selective scan, SSD", "Y", SSM),
    Operation(61, "causal depthwise conv1d", "Y", CAUSAL),
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.cumsum", "torch", SCAN, "torch.{call}({x}, {dim})", (), (58,), since="always",
        unmeasured="it is the call already", note="CUB; torch.compile scans short rows itself.",
        source="torch documentation",
        targets=frozenset({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}),
    ),
    compiled(
        SCAN, 58, conditions=(
            Condition("no backward of cumprod, which is 100 times slower compiled",
                      lambda f: not (f.requires_grad and f.roles.get("call") == "cumprod")),
        ), source="pytorch/pytorch#136263",
    ),
    Entry(
        "library:torch._higher_order_ops.associative_scan", "torch", RECURRENCE,
        "torch.compile(associative_scan)(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, b), dim)", (ON_CUDA,),
        (59,),
        forward_only=True, feature="associative_scan", since="2.6",
        unmeasured="which tensors the loop steps through is not read", gives_up="experimental, pointwise, on CUDA only",
        source="torch 2.13, torch/_higher_order_ops/associative_scan.py",
    ),
    Entry(
        "library:mamba_ssm.selective_scan", "mamba_ssm", SSM, "mamba_ssm selective_scan_fn(u, delta, A, B, C)",
        (constant("state", "a state of up to 256 numbers", lambda n: n <= 256),), (60,), (7, 0), NO_DOUBLE,
        unmeasured="which tensors the loop steps through is not read", source="state-spaces/mamba",
    ),
    Entry(
        "library:causal_conv1d.causal_conv1d_fn", "causal_conv1d", CAUSAL,
        "causal_conv1d_fn({x}, {weight}.squeeze(1), {bias}, activation={activation!r})",
        (constant("width", "filters of 2 to 4", lambda n: 2 <= n <= 4),), (61,), (7, 0), NO_DOUBLE,
        adapter="causal_conv1d",
        note="An unrolled form under torch.compile ties it on an A40.", source="Dao-AILab/causal-conv1d#41",
    ),
    compiled(
        CAUSAL, 61, dtypes=(*HALF, "f32"), conditions=(constant("width", "filters of 2 to 4", lambda n: 2 <= n <= 4),),
        call="torch.compile(f)  # with the filter's taps unrolled", source="Dao-AILab/causal-conv1d#41",
    ),
)  # fmt: skip
