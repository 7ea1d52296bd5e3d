"""What the region language holds, as /learn lists it. Text as data."""

from __future__ import annotations

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
