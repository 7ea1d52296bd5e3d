"""Losses: cross entropy with and without its linear layer, distances of distributions, losses of pairs. Torch-free."""

from __future__ import annotations

from kernels.libraries.conditions import (
    FLOATING,
    FLOATS,
    HALF,
    NO_DOUBLE,
    TRAINING,
    compiled,
    multiple,
    rank,
)
from kernels.libraries.model import Condition, Entry, Operation

LOSS, LINEAR = frozenset({"cross_entropy"}), frozenset({"linear_cross_entropy"})
KL, PAIR = frozenset({"kl_div"}), frozenset({"pair_loss"})

MEAN_OR_SUM = Condition("reduction mean or sum", lambda f: f.roles.get("reduction", "mean") in ("mean", "sum"))
WIDENED = Condition("logits that the text widens", lambda f: "narrow" in f.roles)
ROUNDED = Condition("a loss that may be rounded to the logits' dtype", lambda f: None)
ROWS = rank("x", 2, "logits of [rows, classes]")
FLAT = rank("x", 2, "two dimensions, [rows, classes]")

OPERATIONS: tuple[Operation, ...] = (
    Operation(34, "cross_entropy over a large vocabulary", "Y", LOSS),
    Operation(35, "linear and cross_entropy", "Y*", LINEAR, note="for memory; the time may be more"),
    Operation(36, "kl_div, jsd, tvd, DPO, ORPO and GRPO losses", "Y*", KL),
    Operation(37, "MSE, L1, Huber, BCE", "C", PAIR),
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "library:torch.nn.functional.cross_entropy", "torch", LOSS, "F.cross_entropy({x}, {target})", (FLOATING,),
        (34,),
        adapter="cross_entropy", since="always", source="torch documentation", targets=frozenset({"nll_loss_forward"}),
        note="Two kernels and a stored log-softmax; torch.compile needs a third less time on an H200.",
    ),
    Entry(
        "library:liger_kernel.cross_entropy", "liger_kernel", LOSS, "liger_cross_entropy({x}, {target})",
        (TRAINING, ROWS), (34,), dtypes=NO_DOUBLE, adapter="liger_cross_entropy", since="0.1",
        note="Overwrites the logits with their gradient; measured on a copy where the region is given them, or reads "
             "them again.",
        gives_up="the logits",         source="linkedin/Liger-Kernel ead96b61",
    ),
    Entry(
        "library:liger_kernel.cross_entropy_narrow", "liger_kernel", LOSS, "liger_cross_entropy({x}, {target}).float()",
        (TRAINING, ROWS, WIDENED, ROUNDED), (34,), dtypes=NO_DOUBLE, adapter="liger_narrow_cross_entropy", since="0.1",
        note="Reads the logits as they are, and rounds each row's loss to their dtype.",
        gives_up="the logits, and the loss's precision", source="linkedin/Liger-Kernel ead96b61", narrow=True,
        loses_digits=True,
    ),
    Entry(
        "library:quack.cross_entropy", "quack", LOSS, "quack.cross_entropy({x}, {target}, reduction={reduction!r})",
        (ROWS, multiple("classes in multiples of 8", 8, ("x", -1))), (34,), (9, 0), NO_DOUBLE,
        adapter="quack_cross_entropy", gives_up="CuTeDSL compiles at the first call",
        source="quack-kernels 0.6.5; 605 µs for 8192x128256 on an H200", narrow=True,
    ),
    Entry(
        "library:flash_attn.cross_entropy", "flash_attn", LOSS,
        "flash_attn.ops.triton.cross_entropy.cross_entropy_loss({x}, {target})", (ROWS,), (34,), dtypes=NO_DOUBLE,
        adapter="flash_attn_cross_entropy", source="Dao-AILab/flash-attention 0251105a", narrow=True,
    ),
    Entry(
        "library:flag_gems.cross_entropy_loss", "flag_gems", LOSS,
        "flag_gems.cross_entropy_loss({x}, {target}, reduction={reduction!r})", (), (34,), dtypes=NO_DOUBLE,
        adapter="flag_gems_cross_entropy", source="flag_gems 5.0.2",
    ),
    Entry(
        "library:torch.nn.functional.linear_cross_entropy", "torch", LINEAR,
        "F.linear_cross_entropy({a}, {b:turned}, {target}, reduction={reduction!r}, "
        "options=torch.nn.LinearCrossEntropyOptions())",
        (MEAN_OR_SUM, rank("a", 2, "rows of [rows, width]")), (35,), dtypes=FLOATS, adapter="linear_cross_entropy",
        feature="F.linear_cross_entropy", since="2.13", note="In chunks: the logits are never whole.",
        gives_up="time, where the logits would fit", source="torch 2.13, torch/nn/functional.py",
    ),
    Entry(
        "library:liger_kernel.fused_linear_cross_entropy", "liger_kernel", LINEAR,
        "liger_fused_linear_cross_entropy({a}, {b:turned}, {target}, reduction={reduction!r})", (TRAINING, MEAN_OR_SUM),
        (35,), dtypes=NO_DOUBLE, adapter="liger_fused_linear_cross_entropy", since="0.1",
        note="Saves memory; 121 ms against 56 at 4096 rows on an A100.",
        gives_up="time at few rows; in 16 bits the weight's gradient is added up in 16 bits, a chunk of rows at a time",
        source="linkedin/Liger-Kernel ead96b61, benchmark data; liger_kernel 0.8.5, ops/fused_linear_cross_entropy.py",
    ),
    Entry(
        "library:cut_cross_entropy.linear_cross_entropy", "cut_cross_entropy", LINEAR,
        "cut_cross_entropy.linear_cross_entropy({a}, {b:turned}, {target}, reduction={reduction!r})",
        (), (35,), (8, 0), NO_DOUBLE, adapter="cut_cross_entropy",
        since="25.1", note="Never stores the logits: 24 GB to 1 MB.", source="apple/ml-cross-entropy",
    ),
    Entry(
        "library:quack.chunked_linear_cross_entropy", "quack", LINEAR,
        "quack.linear_cross_entropy.chunked_linear_cross_entropy({a}, {b:turned}, {target}, reduction={reduction!r})",
        (MEAN_OR_SUM, multiple("rows, width and classes in multiples of 8", 8, ("a", 0), ("a", -1), ("b", 0), ("b",
        1))),
        (35,), (9, 0), HALF, adapter="quack_linear_cross_entropy",
        source="quack-kernels 0.6.5, linear_cross_entropy.py",
    ),
    Entry(
        "library:liger_kernel.kl_div", "liger_kernel", KL, "liger_kl_div({x}, {target}, ...)", (TRAINING, FLAT), (36,),
        dtypes=NO_DOUBLE, unmeasured="which reduction the region's sum and divisor are is not read",
        note="Forward alone is often slower; forward and backward are faster.", since="0.5",
        source="liger_kernel 0.8.5, ops/kl_div.py",
    ),
    compiled(PAIR, 37, conditions=(FLOATING,), source="coverage catalogue, row 37"),
)  # fmt: skip
