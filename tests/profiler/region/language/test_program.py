"""Programs compute what torch computes; what does not fit is refused with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from profiler.oracle.inductor.answer import predict
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import RegionError
from tests.profiler.oracle.asking import device
from tests.profiler.region import texts


def run(text: str, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return program(parse(text)).module(*inputs)  # type: ignore[no-any-return]


def test_example_computes_what_torch_does() -> None:
    x, w, b, m = torch.randn(8, 16), torch.randn(16, 32), torch.randn(32), torch.randn(8, 32)
    text = "x: f32[8, 16]\nw: f32[16, 32]\nb: f32[32]\nm: f32[8, 32]\n" + texts.EXAMPLE.split("\n", 4)[4]
    (got,) = run(text.replace("mask", "m"), x, w, b, m)
    torch.testing.assert_close(got, F.gelu(x @ w + b) * m)


def test_rope_slices_and_concatenates() -> None:
    x, c, s = torch.randn(2, 3, 5, 128), torch.randn(5, 128), torch.randn(5, 128)
    text = "x: f32[2, 3, 5, 128]\nc: f32[5, 128]\ns: f32[5, 128]\n" + texts.ROPE.split("\n", 3)[3]
    (got,) = run(text, x, c, s)
    torch.testing.assert_close(got, x * c + torch.cat((-x[..., 64:], x[..., :64]), -1) * s)


def test_loop_unrolls_with_its_variable_and_list() -> None:
    a, b = torch.rand(3, 4, 5), torch.rand(3, 4, 5)
    text = (
        "a: f32[3, 4, 5]\nb: f32[3, 4, 5]\nh = zeros_like(b[:, 0])\no = []\n"
        "for t in range(b.shape[1]):\n    h = a[:, t] * h + b[:, t]\n    o.append(h)\nreturn stack(o, 1)\n"
    )
    h, want = torch.zeros(3, 5), []
    for t in range(4):
        h = a[:, t] * h + b[:, t]
        want.append(h)
    torch.testing.assert_close(run(text, a, b)[0], torch.stack(want, 1))


def test_tuples_unpack_and_several_outputs_return() -> None:
    x = torch.randn(4, 6)
    got = run("x: f32[4, 6]\na, b = x.chunk(2, -1)\nv, i = topk(x, 2)\nreturn a * b, v, i\n", x)
    assert torch.equal(got[0], x[:, :3] * x[:, 3:])
    assert torch.equal(got[2], torch.topk(x, 2).indices)


def test_symbols_take_the_binding() -> None:
    region = parse("N: sizes[3, 5]\nx: f32[N, 4]\nreturn x.view(-1, 2)\n")
    assert program(region).outputs[0].shape == (6, 2)
    assert program(region, {"N": 5}).outputs[0].shape == (10, 2)


REFUSED = {
    "y = gleu(x)": ("region-unknown-name", "did you mean gelu?"),
    "y = x @ x": ("region-shape", "operands: bf16[8, 4], bf16[8, 4]"),
    "y = x.view(3)": ("region-shape", None),
    "y = torch.load(x)": ("region-unknown-name", None),
    "y = torch.ops.aten.add(x, x)": ("region-unknown-name", None),
    "y = softmax(x, dim=7)": ("region-shape", None),
    "y = softmax(x.long(), dim=1)": ("region-dtype", None),
    "y = x & 1": ("region-dtype", None),
    "y = x @ x.float().T": ("region-dtype", "cast one with .to(bf16)"),
    "y = x.foo()": ("region-unknown-name", None),
    "y = x.data": ("region-unknown-name", None),
    "y = x.numpy()": ("region-unknown-name", None),
    "y = x.to('cuda')": ("region-type", None),
    "y = x + 10**10**10": ("region-too-large", None),
    "y = x.expand(10**8, 10**5, 8, 4)": ("region-too-large", None),
    "y = x.shape[0]": ("region-type", None),
    "y = os.system('a')": ("region-unknown-name", None),
    "y = eval('x')": ("region-unknown-name", None),
    "y = x\nfor i in range(10**9):\n    y = y + 1": ("region-too-long", None),
    "y = zeros(2**50)": ("region-too-large", None),
    "y = x[99]": ("region-shape", None),
    "a, b, c = x.chunk(2)\ny = a": ("region-type", None),
    "y = (1).__class__": ("region-unknown-name", None),
    "y = undefined + 1": ("region-unknown-name", None),
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(body: str) -> None:
    with pytest.raises(RegionError) as caught:
        program(parse(f"x: bf16[8, 4]\n{body}\nreturn y\n"))
    code, hint = REFUSED[body]
    assert caught.value.code == code
    assert caught.value.line >= 2
    if hint is not None:
        assert caught.value.hint == hint
    assert "^" in str(caught.value)


def test_no_memory_is_taken_for_a_region_larger_than_the_host() -> None:
    built = program(parse("x: f32[1048576, 1048576]\nreturn x * 2 + 1\n"))
    assert built.outputs[0].shape == (1048576, 1048576)


@pytest.mark.parametrize("body", ["x.add_(1)", "y = x.relu_()", "x[0].copy_(x[1])", "y = F.relu(x, inplace=True)"])
def test_input_that_requires_a_gradient_is_not_changed_in_place(body: str) -> None:
    text = f"x: f32[8, 4].requires_grad\n{body}\nreturn x * 1\n"
    with pytest.raises(RegionError) as caught:
        program(parse(text))
    assert caught.value.line == 2
    program(parse(text.replace(".requires_grad", "")))


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("torch.finfo(x.dtype).min * x", lambda x: torch.finfo(torch.bfloat16).min * x),
        ("x / math.sqrt(x.shape[-1])", lambda x: x / 2.0),
        ("torch.sort(x, 1).values", lambda x: torch.sort(x, 1).values),
        ("x.max(1).indices", lambda x: x.max(1).indices),
        ("torch.nn.functional.gelu(x)", F.gelu),
        ("x.masked_fill(x > 0, -torch.inf)", lambda x: x.masked_fill(x > 0, -torch.inf)),
        ("x.view(-1).view(len(x.shape), *[1])[0]", None),
        ("x[None].T", lambda x: x[None].permute(2, 1, 0)),
        ("torch.fft.rfft(x.float()).imag", lambda x: torch.fft.rfft(x.float()).imag),
        ("zeros(x.shape[:1] + (3,)) + x.sum()", lambda x: torch.zeros(8, 3) + x.sum()),
        ("x[..., [0, 2]]", lambda x: x[..., [0, 2]]),
        ("x.to(memory_format=torch.contiguous_format)", lambda x: x),
        ("einsum('ij,kj->ik', x, x)", lambda x: torch.einsum("ij,kj->ik", x, x)),
    ],
)
def test_what_people_write_is_in_the_language(expression: str, want: Callable[..., torch.Tensor] | None) -> None:
    x = torch.randn(8, 4).to(torch.bfloat16)
    text = f"x: bf16[8, 4]\ny = {expression}\nreturn y\n"
    if want is None:
        with pytest.raises(RegionError):
            program(parse(text))
        return
    assert torch.equal(run(text, x)[0], want(x))


def test_cuda_never_starts() -> None:
    program(parse(texts.EXAMPLE))
    assert not torch.cuda.is_initialized()


def test_an_input_called_self_may_stand_anywhere() -> None:
    for text in ("x: f32[4]\nself: f32[4]\nreturn x - self\n", "self: f32[4]\nx: f32[4]\nreturn x - self\n"):
        built = program(parse(text))
        ones, twos = torch.ones(4), torch.full((4,), 2.0)
        given = {"x": ones, "self": twos}
        (made,) = built.module(*(given[i.name] for i in built.region.inputs))
        assert made.tolist() == [-1.0] * 4
        assert not predict(built.region, None, device()).unavailable
