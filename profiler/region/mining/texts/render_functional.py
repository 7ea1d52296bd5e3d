"""Operations whose function in torch takes its arguments in another order, or says them otherwise, than the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profiler.region.mining.texts.call_arguments import Arguments, UnwritableError

LOSSES = frozenset(
    """binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss gaussian_nll_loss
    hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss
    poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss""".split()
)
"""Losses of two tensors or three, whose reduction is a number in the schema and a word in torch."""

LIKELIHOODS = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward"})
"""Losses against indices of classes."""

REDUCTION_NAMES: Mapping[int, str] = {0: "none", 1: "mean", 2: "sum"}
BAG_MODES: Mapping[int, str] = {0: "sum", 1: "mean", 2: "max"}


def reduction(a: Arguments) -> str:
    """`, reduction='sum'` where it is not the mean."""
    how = REDUCTION_NAMES.get(1 if (number := a.number("reduction")) is None else number, "mean")
    return "" if how == "mean" else f", reduction='{how}'"


def _loss(a: Arguments) -> str:
    """The tensors that every call has, then all that is not the default by name."""
    tensors = [a.text[n] for n in a.call.names if n not in a.call.defaults and a.call.arguments[n].sigs]
    rest = [n for n in a.call.names if n != "reduction" and (n in a.call.defaults or not a.call.arguments[n].sigs)]
    return f"{a.base}({', '.join(tensors)}{a.options(*rest)}{reduction(a)})"


def _negative_likelihood(a: Arguments) -> str:
    return f"nll_loss({a.tensors('self', 'target', 'weight')}{reduction(a)}{a.options('ignore_index')})"


def _cross_entropy(a: Arguments) -> str:
    options = a.options("ignore_index", "label_smoothing")
    return f"cross_entropy({a.tensors('self', 'target', 'weight')}{reduction(a)}{options})"


def _instance_norm(a: Arguments) -> str:
    """torch's function takes the statistics first, the schema the weights; every tensor may be None."""
    parts = [f"{n}={a.text[n]}" for n in ("running_mean", "running_var", "weight", "bias") if a.has(n)]
    if a.value("use_input_stats") is False:
        parts.append("use_input_stats=False")
    if a.has("eps") and a.value("eps") != 1e-5:
        parts.append(f"eps={a.text['eps']}")
    return f"instance_norm({', '.join([a.first(), *parts])})"


def _embedding_bag(a: Arguments) -> str:
    mode = BAG_MODES.get(a.number("mode") or 0)
    if mode is None:
        raise UnwritableError("the trace records no mode of embedding_bag that there is")
    options = a.options("per_sample_weights")
    options += ", include_last_offset=True" if a.value("include_last_offset") is True else ""
    padding = a.number("padding_idx")
    options += f", padding_idx={padding}" if padding is not None and padding >= 0 else ""
    return f"embedding_bag({a.text['indices']}, {a.text['weight']}, {a.text['offsets']}, mode='{mode}'{options})"


def _tensordot(a: Arguments) -> str:
    return f"tensordot({a.text['self']}, {a.text['other']}, dims=({a.text['dims_self']}, {a.text['dims_other']}))"


def _windows(a: Arguments) -> str:
    """The method: torch's function of this name is im2col."""
    return f"{a.first()}.unfold({a.text['dimension']}, {a.text['size']}, {a.text['step']})"


def _unfold(a: Arguments) -> str:
    return f"unfold({a.first()}, {a.text['kernel_size']}{a.options('dilation', 'padding', 'stride')})"


FUNCTIONAL: Mapping[str, Callable[[Arguments], str]] = {
    **dict.fromkeys(LOSSES, _loss),
    **dict.fromkeys(LIKELIHOODS, _negative_likelihood), "cross_entropy_loss": _cross_entropy,
    "instance_norm": _instance_norm, "embedding_bag": _embedding_bag,
    "tensordot": _tensordot, "im2col": _unfold, "unfold": _windows,
}  # fmt: skip
