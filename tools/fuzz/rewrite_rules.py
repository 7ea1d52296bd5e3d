"""Rules of algebra over a region's expressions: other texts of the same value."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Rule = Callable[[ast.expr], Iterator[str]]


def _name(node: ast.expr) -> str:
    """`f` of f(...), of x.f(...) and of F.f(...)."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _operands(node: ast.Call) -> list[str]:
    """Texts of a call's positional arguments, what a method is of among them."""
    method = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in ("F", "torch")
    before = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []
    return [ast.unparse(a) for a in (*before, *node.args)]


def _arithmetic(node: ast.expr) -> Iterator[str]:
    """Order, grouping, signs, divisions."""
    if isinstance(node, ast.BinOp):
        a, b = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.op, ast.Mult):
            yield f"({b}) * ({a})"
            if isinstance(node.right, ast.Constant):
                yield f"({a}) / (1.0 / {b})"
            elif b.startswith("torch.reciprocal("):
                yield f"({a}) / ({b.removeprefix('torch.reciprocal(').removesuffix(')')})"  # that of counts is no count
            elif _is_tensor(node.right):
                yield f"({a}) / torch.reciprocal({b})"
            if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult):
                yield f"({ast.unparse(node.left.left)}) * (({ast.unparse(node.left.right)}) * ({b}))"
            if a == b:
                yield f"({a}).square()"
        elif isinstance(node.op, ast.Add):
            yield f"({b}) + ({a})"
            yield f"({a}) - (-({b}))"
        elif isinstance(node.op, ast.Sub):
            yield f"({a}) + (-({b}))"
            yield f"-(({b}) - ({a}))"
        elif isinstance(node.op, ast.Div) and _is_tensor(node.right):
            yield f"({a}) * torch.reciprocal({b})"
        elif isinstance(node.op, ast.MatMult):
            yield f"torch.matmul({a}, {b})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_tensor(node.operand):
        yield f"({ast.unparse(node.operand)}) * -1"


def _is_tensor(node: ast.expr) -> bool:
    """Certainly no number."""
    return any(isinstance(n, ast.Name) and n.id not in ("torch", "F", "float") for n in ast.walk(node)) and not any(
        isinstance(n, ast.Attribute) and n.attr == "shape" for n in ast.walk(node)
    )


def _roots(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "rsqrt":
        (x,) = _operands(node)
        yield f"1.0 / torch.sqrt({x})"
        yield f"({x}).pow(-0.5)"
        yield f"torch.sqrt({x}).reciprocal()"
    if isinstance(node, ast.Call) and _name(node) == "pow" and len(_operands(node)) == 2:
        x, e = _operands(node)
        yield f"({x}) ** {e}"
        if e == "2":
            yield f"({x}) * ({x})"
            yield f"({x}).square()"
        if e == "3":
            yield f"({x}) * ({x}) * ({x})"


def _reductions(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "mean" and node.keywords and len(_operands(node)) == 2:
        x, axis = _operands(node)
        if axis == "-1":
            yield f"({x}).sum(-1, keepdim=True) / ({x}).shape[-1]"
            yield f"({x}).mean(-1).unsqueeze(-1)"
            yield f"({x}).sum(-1, keepdim=True) * (1.0 / ({x}).shape[-1])"
            yield f"torch.mean({x}, dim=[-1], keepdim=True)"
        if x == "x.pow(2)" and axis == "-1":  # rows of three axes
            yield f"({x}).mean(2, keepdim=True)"


def _largest(node: ast.expr) -> Iterator[str]:
    """The largest magnitude of a row."""
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and text.endswith(".abs().amax(-1, keepdim=True)"):
        x = text.removesuffix(".abs().amax(-1, keepdim=True)")
        yield f"torch.maximum({x}.amax(-1, keepdim=True), -{x}.amin(-1, keepdim=True))"
        yield f"torch.amax(torch.abs({x}), dim=-1).unsqueeze(-1)"
        yield f"{x}.abs().max(-1, keepdim=True)[0]"
        yield f"torch.maximum({x}, -{x}).amax(-1, keepdim=True)"
        yield f"torch.linalg.vector_norm({x}, float('inf'), -1, keepdim=True)"
        yield f"torch.sqrt({x} * {x}).amax(-1, keepdim=True)"


def _limits(node: ast.expr) -> Iterator[str]:
    """A number kept between two."""
    if not isinstance(node, ast.Call) or _name(node) not in ("clamp", "round"):
        return
    x, *bounds = _operands(node)
    if len(bounds) == 2:
        low, high = bounds
        yield f"({x}).clamp(min={low}).clamp(max={high})"
        yield f"torch.clamp({x}, {low}, {high})"
        yield f"torch.clamp_max(torch.clamp_min({x}, {low}), {high})"
        yield f"torch.minimum(torch.maximum({x}, torch.full_like({x}, {low})), torch.full_like({x}, {high}))"
        if x.endswith(".round()"):
            inner = x.removesuffix(".round()")
            yield f"{inner}.clamp({low}, {high}).round()"
            yield f"torch.round(torch.clamp({inner}, {low}, {high}))"
    elif _name(node) == "clamp" and [k.arg for k in node.keywords] == ["min"]:
        least = ast.unparse(node.keywords[0].value)
        yield f"torch.clamp_min({x}, {least})"
        yield f"torch.maximum({x}, torch.full_like({x}, {least}))"
    elif _name(node) == "round":
        yield f"torch.round({x})"


def _variances(node: ast.expr) -> Iterator[str]:
    if ast.unparse(node) == "(d * d).mean(-1, keepdim=True)":
        yield "x.var(-1, correction=0, keepdim=True)"
        yield "x.var(-1, unbiased=False, keepdim=True)"
        yield "((x * x).mean(-1, keepdim=True) - m * m)"
        yield "((x.pow(2)).mean(-1, keepdim=True) - m.square()).clamp(min=0)"


def _softmaxes(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) in ("softmax", "log_softmax") and _operands(node)[1:] == ["-1"]:
        x = _operands(node)[0]
        shifted = f"({x}) - ({x}).amax(-1, keepdim=True)"
        if _name(node) == "softmax":
            yield f"torch.exp({shifted}) / torch.exp({shifted}).sum(-1, keepdim=True)"
            yield f"torch.exp(log_softmax({x}, -1))"
            yield f"torch.exp({x}) / torch.exp({x}).sum(-1).unsqueeze(-1)"
        else:
            yield f"({x}) - torch.logsumexp({x}, -1, keepdim=True)"
            yield f"({shifted}) - torch.log(torch.exp({shifted}).sum(-1, keepdim=True))"
            yield f"torch.log(softmax({x}, -1))"


def _losses(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "nll_loss":
        shares = _operands(node)[0]
        yield f"-({shares}).gather(-1, t.unsqueeze(-1)).mean()"
        yield f"-({shares}).gather(1, t[:, None]).squeeze(1).mean()"
        yield f"-({shares})[torch.arange(6), t].mean()"
        yield f"-({shares})[torch.arange(6), t].sum() / 6"
    if ast.unparse(node) == "F.nll_loss(log_softmax(x, -1), t)":
        yield "F.cross_entropy(x, t)"
        yield "(torch.logsumexp(x, -1) - x.gather(-1, t.unsqueeze(-1)).squeeze(-1)).mean()"


def _activations(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "silu":
        (x,) = _operands(node)
        yield f"({x}) * torch.sigmoid({x})"
        yield f"({x}) / (1.0 + torch.exp(-({x})))"
        yield f"({x}) * torch.reciprocal(1.0 + torch.exp(-({x})))"
        yield f"torch.sigmoid({x}) * ({x})"
    if isinstance(node, ast.Call) and _name(node) == "relu":
        (x,) = _operands(node)
        yield f"({x}).clamp(min=0)"
        yield f"torch.clamp_min({x}, 0.0)"
        yield f"torch.maximum({x}, torch.zeros_like({x}))"
        yield f"torch.where(({x}) > 0, {x}, 0.0)"
        yield f"({x}).masked_fill(({x}) < 0, 0.0)"
        yield f"({x}) * (({x}) > 0)"
    if isinstance(node, ast.Call) and _name(node) == "gelu" and node.keywords:
        (x,) = _operands(node)
        yield f"0.5 * ({x}) * (1.0 + torch.tanh(0.7978845608028654 * (({x}) + 0.044715 * ({x}) ** 3)))"
        yield f"({x}) * torch.sigmoid(1.5957691216057308 * ({x}) * (1.0 + 0.044715 * ({x}) * ({x})))"
    if isinstance(node, ast.Call) and _name(node) == "gelu" and not node.keywords:
        (x,) = _operands(node)
        yield f"0.5 * ({x}) * (1.0 + torch.erf(({x}) * 0.7071067811865476))"
        yield f"({x}) * (torch.erf(({x}) / 1.4142135623730951) + 1.0) * 0.5"


def _halves(node: ast.expr) -> Iterator[str]:
    for text, index in (("x[..., 4:]", 1), ("x[..., :4]", 0)):
        if ast.unparse(node) == text:
            yield f"x.chunk(2, -1)[{index}]"
            yield f"x.narrow(-1, {4 * index}, 4)"
            yield f"torch.split(x, 4, dim=-1)[{index}]"
            yield f"cat((x[..., :4], x[..., 4:]), -1)[..., {4 * index}:{4 * index + 4}]"
    if ast.unparse(node) == "cat((-x[..., 4:], x[..., :4]), -1) * s":
        yield "cat((x[..., 4:], -x[..., :4]), -1) * -s"


def _views(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id == "w":
        yield "w.view(1, 1, 8)"
        yield "w[None, None, :]"
        yield "w.expand(3, 4, 8)"
    if isinstance(node, ast.Name) and node.id in ("x", "q", "v", "a") and isinstance(node.ctx, ast.Load):
        yield f"{node.id}.float()"
    if isinstance(node, ast.Call) and _name(node) == "transpose" and _operands(node)[1:] == ["-1", "-2"]:
        x = _operands(node)[0]
        yield f"({x}).transpose(2, 3)"
        yield f"({x}).permute(0, 1, 3, 2)"
        yield f"({x}).mT"
        yield f"({x}).flatten(0, 1).transpose(1, 2).reshape(2, 4, 8, 6)" if x == "k" else f"({x}).mT"
    if ast.unparse(node) == "q @ k.transpose(-1, -2) * 0.35":
        yield "(q * 0.35) @ k.transpose(-1, -2)"
        yield "q @ (k * 0.35).transpose(-1, -2)"
        yield "torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.35"
        yield "q @ k.transpose(-1, -2) / 2.857142857142857"
        yield "(q * 0.5) @ (k * 0.7).transpose(-1, -2)"


def _masks(node: ast.expr) -> Iterator[str]:
    text = ast.unparse(node)
    if text == "s.masked_fill(~m, float('-inf'))":
        yield "torch.where(m, s, float('-inf'))"
        yield "torch.where(~m, float('-inf'), s)"
        yield "s.masked_fill(m.logical_not(), float('-inf'))"
        yield "s + torch.zeros(6, 6).masked_fill(~m, float('-inf'))"
        yield "s + torch.where(m, 0.0, float('-inf'))"
        yield "s.masked_fill(~m, -1e30)"
        yield "s.masked_fill(m.float() == 0, float('-inf'))"
        yield "s + (1.0 - m.float()) * -1e30"
    if text == "torch.where(m, s, float('-inf'))":
        yield "s.masked_fill(~m, float('-inf'))"
        yield "s.masked_fill(torch.logical_not(m), float('-inf'))"
        yield "s - 1e30 * (1 - m.float())"
        yield "s + torch.where(m, 0.0, float('-inf'))"
        yield "torch.where(m[None, None], s, float('-inf'))"
    if text == "torch.ones(6, 6, dtype=torch.bool).tril()":
        yield "~torch.ones(6, 6, dtype=torch.bool).triu(1)"
        yield "torch.arange(6)[:, None] >= torch.arange(6)[None, :]"
        yield "torch.arange(6)[None, :] <= torch.arange(6).unsqueeze(-1)"
        yield "~(torch.arange(6) > torch.arange(6).view(6, 1))"
        yield "torch.tril(torch.ones(6, 6, dtype=torch.bool))"
        yield "torch.tril(torch.ones(6, 6)).bool()"
        yield "torch.tril(torch.ones(6, 6)) == 1"
        yield "torch.triu(torch.ones(6, 6), diagonal=1) == 0"


def _kept(node: ast.expr) -> Iterator[str]:
    """Numbers times a mask of true and false: what is chosen by the mask is another value where a number is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and ast.unparse(node.right) == "keep":
        y = ast.unparse(node.left)
        yield f"({y}) * keep.float()"
        yield f"({y}) * (~(keep.logical_not())).float()"
        yield f"keep * ({y})"
        yield f"({y}) * (1.0 - (~keep).float())"


def _groups(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node) == "repeat_interleave" and _operands(node)[0] in ("k", "v"):
        x = _operands(node)[0]
        yield f"{x}[:, :, None].expand(2, 2, 2, 6, 8).reshape(2, 4, 6, 8)"
        yield f"{x}.unsqueeze(2).expand(-1, -1, 2, -1, -1).reshape(2, 4, 6, 8)"
        yield f"{x}.unsqueeze(2).repeat(1, 1, 2, 1, 1).flatten(1, 2)"


RULES: tuple[Rule, ...] = (
    _arithmetic, _roots, _reductions, _largest, _limits, _variances, _softmaxes, _losses, _activations, _halves, _views,
    _masks, _kept, _groups,
)  # fmt: skip
