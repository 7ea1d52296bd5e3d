"""A family is a program's structure: told apart by sizes, dtypes or spellings, near programs would be in two thirds."""

from __future__ import annotations

import hashlib

import pytest

from tools.corpus.families import LABELS, THIRDS, family_of, fold_repeats, third_of

PRODUCT = """x: {d}[{m}, {k}]
w: {d}[{n}, {k}]
b: {d}[{n}]
{line}
return gelu(z)
"""
NORM = """x: {d}[{m}, {k}].requires_grad
g: {d}[{k}].requires_grad
{lines}
return y
"""
ATTENTION = """q: {d}[2, {h}, {s}, 64]
k: {d}[2, {h}, {s}, 64]
v: {d}[2, {h}, {s}, 64]
{lines}
return y
"""
BY_HAND = """p = softmax(q @ k.transpose(-1, -2) / 8.0, -1)
y = p @ v"""
CAUSAL = """s = q @ k.transpose(-1, -2) / 8.0
s = s.masked_fill(ones(({s}, {s}), dtype=torch.bool).triu(1), float('-inf'))
y = softmax(s, -1) @ v"""
LOOP = """x: f32[8, {t}, 64]
h = zeros_like(x[:, 0])
out = []
for t in range({t}):
    h = 0.9 * h + x[:, t]
    out.append(h)
return stack(out, 1)
"""


@pytest.mark.parametrize("d", ["bf16", "f16", "f32"])
@pytest.mark.parametrize(("m", "k", "n"), [(8, 768, 3072), (4096, 4096, 11008)])
@pytest.mark.parametrize("line", ["z = linear(x, w, b)", "z = x @ w.t() + b", "z = torch.matmul(x, w.T) + b"])
def test_a_product_with_bias_is_one_family_at_any_size_dtype_and_spelling(
    d: str, m: int, k: int, n: int, line: str
) -> None:
    family = family_of(PRODUCT.format(d=d, m=m, k=k, n=n, line=line))
    assert (family.name, family.label) == ("mm-nt bias pointwise", "matmul")


@pytest.mark.parametrize(
    ("declared", "strided"),
    [
        ("x: f32[8, 96, 64]", "x: f32[8, 96, 64].strides(6144, 1, 96)"),
        ("x: f32[8, 96, 64]", "x: f32[8, 96, 64].strides(64, 512, 1)"),
    ],
)
def test_a_layout_does_not_tell(declared: str, strided: str) -> None:
    rest = "\nw: f32[32, 64]\nb: f32[32]\nreturn relu(linear(x, w, b))\n"
    assert family_of(strided + rest) == family_of(declared + rest)
    image = "x: f32[8, 16, 64, 64]{}\nw: f32[16, 16, 3, 3]\nreturn relu(conv2d(x, w)).mean((2, 3))\n"
    assert family_of(image.format(".channels_last")) == family_of(image.format(""))


@pytest.mark.parametrize("d", ["bf16", "f32"])
@pytest.mark.parametrize(("m", "k"), [(64, 512), (16384, 4096)])
def test_a_norm_by_hand_is_the_family_of_its_call_and_training_that_of_forward(d: str, m: int, k: int) -> None:
    call = NORM.format(d=d, m=m, k=k, lines=f"y = rms_norm(x, [{k}], g, 1e-6)")
    f = "x.float()" if d == "bf16" else "x"
    back = ".to(bf16)" if d == "bf16" else ""
    hand = NORM.format(
        d=d, m=m, k=k,
        lines=f"f = {f}\nn = f * rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)\ny = g * n{back}",
    )  # fmt: skip
    names = {family_of(text).name for text in (call, hand, call.replace(".requires_grad", ""))}
    assert names == {"rms_norm"}


@pytest.mark.parametrize(("d", "h", "s"), [("bf16", 8, 128), ("f32", 2, 1024)])
def test_attention_is_told_apart_by_its_mask_and_not_by_its_spelling(d: str, h: int, s: int) -> None:
    def name(lines: str) -> str:
        return family_of(ATTENTION.format(d=d, h=h, s=s, lines=lines.replace("{s}", str(s)))).name

    assert name(BY_HAND) == name("y = scaled_dot_product_attention(q, k, v)") == "attention"
    assert name(CAUSAL) == name("y = scaled_dot_product_attention(q, k, v, is_causal=True)") == "attention-causal"


def test_a_loop_is_one_family_however_often_it_goes_round() -> None:
    families = {family_of(LOOP.format(t=t)) for t in (4, 16, 48)}
    assert len(families) == 1
    assert families.pop().label == "scan"


@pytest.mark.parametrize(
    ("lines", "label"),
    [
        ("y = conv2d(x.view(8, 8, 64, 64), g.view(8, 8, 3, 3))", "convolution"),
        ("y = x.sum(0)", "reduction"),
        ("y = cumsum(x, -1)", "scan"),
        ("y = x[:, :64] + g[:64] * x.amax()", "reduction"),
        ("y = embedding(i, x)", "gather/scatter"),
        ("y = silu(x) * 2.0", "pointwise"),
        ("y = softmax(x, -1)", "norm"),
    ],
)  # fmt: skip
def test_the_label_is_the_costliest_kind(lines: str, label: str) -> None:
    text = f"x: f32[512, 512]\ng: f32[576]\ni: i64[64].below(512)\n{lines}\nreturn y\n"
    assert family_of(text).label == label
    assert label in LABELS


def test_structures_that_differ_are_different_families() -> None:
    def name(line: str) -> str:
        return family_of(f"x: f32[8, 16, 64, 64]\nw: f32[16, 16, 3, 3]\nv: f32[16, 1, 3, 3]\n{line}\nreturn y\n").name

    lines = (
        "y = conv2d(x, w)", "y = conv2d(x, w, stride=2)", "y = conv2d(x, v, groups=16)", "y = relu(conv2d(x, w))",
        "y = conv_transpose2d(x, w)", "y = x.sum(-1)", "y = x.sum((0, 2, 3))", "y = x.sum()", "y = relu(x)",
    )  # fmt: skip
    assert len({name(line) for line in lines}) == len(lines)


def test_runs_that_follow_themselves_are_one_run() -> None:
    layer = ["mm-nt", "pointwise", "mm-nt", "layer_norm"]
    assert fold_repeats(layer * 5) == fold_repeats(layer * 2) == layer
    assert fold_repeats(["copy", *["scan", "pointwise"] * 3]) == ["copy", "scan", "pointwise"]


def test_a_third_is_the_hash_of_the_familys_name_and_each_gets_its_share() -> None:
    names = [f"family {i}" for i in range(3000)]
    wanted = [THIRDS[int(hashlib.sha256(n.encode()).hexdigest()[:16], 16) % 3] for n in names]
    assert [third_of(n) for n in names] == wanted
    assert all(900 < wanted.count(third) < 1100 for third in THIRDS)
