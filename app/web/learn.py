"""What /learn says: the rule as decisions, the ladder of tools, what the region language holds. Text as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One question of the rule: what is asked, where it leads, and whose experience it rests on."""

    question: str
    answer: str
    tool: str  # "" where the question only admits candidates
    why: str


RULE: tuple[Decision, ...] = (
    Decision(
        "Is the step fast enough already?",
        "If a target was given and is met, leave it.",
        "skip",
        "The cheapest kernel is the one that nobody has to maintain.",
    ),
    Decision(
        "Could it matter at all?",
        "Under 1 % of the step, or nothing that could win 1 % of it back: leave it.",
        "skip",
        "Amdahl: a part of the step bounds what speeding it up can give.",
    ),
    Decision(
        "Is it a kernel problem?",
        "Communication, copies from the host and waiting for the host are none. Many tiny kernels with the GPU idle "
        'between them: torch.compile in mode "reduce-overhead", which replays them as one CUDA graph.',
        "compile",
        "A faster kernel does not help a GPU that waits to be told what to do.",
    ),
    Decision(
        "Does a library cover it?",
        "Attention, plain GEMM, norms, quantised GEMM, optimizers, grouped GEMM for mixtures of experts: call it. "
        "Where the region is that call already, leave it.",
        "library",
        "Somebody tuned it for this GPU, and keeps doing so.",
    ),
    Decision(
        "Does torch.compile fuse it?",
        "Elementwise chains and row reductions: try it first, it costs one line. Graph breaks, changing shapes and "
        "the first call's compile time count against it.",
        "compile",
        "It writes Triton itself, and what it does not fuse you see in the kernels it would emit.",
    ),
    Decision(
        "Bound by memory, or so custom that nothing fused exists?",
        "And several shapes, so that autotuning is worth having: write Triton.",
        "triton",
        "Tiles in Python, about 100 lines; memory-bound kernels reach what CUDA reaches. Compute-bound ones reach "
        "about 80 to 95 % of hand-tuned code.",
    ),
    Decision(
        "Does it need what Triton does not give?",
        "Cooperation across the whole grid, the last per cent of warp specialisation, NVLink: CUDA, or the library "
        "that has it.",
        "cuda",
        "About ten times the code, fragile over shapes; worth it at the top of the budget only.",
    ),
)


@dataclass(frozen=True, slots=True)
class Rung:
    """One tool of the ladder: what you write and what you get. Figures as the sources state them."""

    tool: str
    name: str
    lines: str
    gets: str
    gives_up: str


LADDER: tuple[Rung, ...] = (
    Rung("eager", "Eager PyTorch", "0", "one kernel per operation", "every intermediate goes through memory"),
    Rung("library", "A library call", "1", "near peak where it covers", "new fusions are not covered"),
    Rung(
        "compile", "torch.compile", "1", "fusion, about 70 % of hand-tuned", "opaque when it does not fuse; first call"
    ),
    Rung(
        "triton", "Triton", "50 to 200", "about 85 % of hand-tuned, autotuned, portable", "warp specialisation, NVLink"
    ),
    Rung("cuda", "CUDA", "500 to 5,000", "about 100 %", "weeks, per-shape tuning, one vendor"),
)

LANGUAGE: tuple[tuple[str, str], ...] = (
    (
        "x: bf16[8192, 4096]",
        "an input: f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool; `f32[()]` is a scalar tensor",
    ),
    ("N: sizes[37, 911, 2048]", "a size that varies; then `x: bf16[N, 4096]`. Several symbols vary together"),
    (
        "x: bf16[8192, 4096].requires_grad",
        "forward and backward. Also `.channels_last`, `.strides(1, 8192)`, `.below(128256)`, `.mask(0.9)`",
    ),
    (
        "z = gelu(x @ w + b)",
        "expressions over torch, torch.nn.functional and tensor methods; a bare name is F's, else torch's",
    ),
    ("for i in range(4): ...", "loops over constants, unrolled; slicing with `...` and None; augmented assignment"),
    ("return y", "one output or several, `return a, b`"),
)
