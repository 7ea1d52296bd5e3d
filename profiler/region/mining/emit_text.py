"""A part of a trace as a region's text, checked by parsing it and running it on fakes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profiler.region.language.program import program
from profiler.region.language.text import parse, to_text
from profiler.region.mining.dataflow import Flow, Graph, Statement, Value, flow
from profiler.region.mining.inline import fold
from profiler.region.mining.output_shapes import contiguous, same_layout
from profiler.region.mining.partition import Part
from profiler.region.mining.render import expression
from profiler.region.mining.texts.call_arguments import Arguments, UnwritableError, literal
from profiler.region.mining.texts.compiled_kernels import write_attention, write_compiled
from profiler.region.mining.texts.many_tensors import Gradients, write_many
from profiler.region.mining.texts.render_functional import LIKELIHOODS, LOSSES
from profiler.region.mining.units import Argument, Sig
from profiler.region.model import FLOATING, ITEMSIZE, RegionError

log = logging.getLogger("tritonworthy.mining")

ROLES: dict[tuple[str, str], str] = {
    ("linear", "input"): "x", ("linear", "weight"): "w", ("linear", "bias"): "b", ("addmm", "self"): "b",
    ("addmm", "mat1"): "x", ("addmm", "mat2"): "w", ("mm", "self"): "x", ("mm", "mat2"): "w", ("bmm", "self"): "x",
    ("bmm", "mat2"): "w", ("matmul", "self"): "x", ("matmul", "other"): "w", ("embedding", "weight"): "table",
    ("embedding", "indices"): "ids", ("scaled_dot_product_attention", "query"): "q",
    ("scaled_dot_product_attention", "key"): "k", ("scaled_dot_product_attention", "value"): "v",
    ("scaled_dot_product_attention", "attn_mask"): "mask",
    **{(f"_scaled_dot_product_{backend}_attention", argument): name
       for backend in ("flash", "cudnn", "efficient")
       for argument, name in {"query": "q", "key": "k", "value": "v", "attn_bias": "mask"}.items()},
    **{(f"_scaled_dot_product_{backend}_attention_backward", argument): name
       for backend in ("flash", "cudnn", "efficient")
       for argument, name in {
           "grad_out": "grad", "grad_out_": "grad", "query": "q", "key": "k", "value": "v", "attn_bias": "mask",
           "out": "out", "logsumexp": "lse", "philox_seed": "seed", "philox_offset": "offset"}.items()},
    ("cross_entropy_loss", "self"): "logits",
    ("cross_entropy_loss", "target"): "target", ("where", "condition"): "mask", ("masked_fill", "mask"): "mask",
    ("_grouped_mm", "offs"): "offs", ("_grouped_mm", "mat2"): "w",
    ("embedding_bag", "weight"): "table", ("embedding_bag", "indices"): "ids", ("embedding_bag", "offsets"): "offsets",
    ("embedding_bag", "per_sample_weights"): "w",
    **{(loss, "target"): "target" for loss in (*LOSSES, *LIKELIHOODS)},
}  # fmt: skip
"""(operation, argument) -> the name of an input."""

GENERIC = {"weight": "w", "bias": "b", "running_mean": "mean", "running_var": "var", "index": "index", "src": "src",
           "mask": "mask", "indices": "index", "input": "x", "other": "a", }  # fmt: skip
NAMES = {
    "m": "mean",
    "v": "var",
    "r": "inv",
    "M": "scores",
    "S": "p",
    "n": "rotated",
    "F": "out",
    "e": "e",
    "b": "total",
}
"""letter -> the name of an intermediate; others are z."""

NO_TEXT = {
    "expert_loop": "which tokens each expert gets depends on the data, so the sizes differ from call to call",
    "recurrence": "which of its equal tensors each round reads is not recorded: write the loop down by hand",
    "communication": "a communication kernel has no region",
}
"""Kinds of parts that have no text -> why."""

NO_GRADIENT = frozenset({"cos", "sin", "freqs", "mask", "mean", "var", "target"})
"""Names of inputs that no gradient is computed for."""
CONSTANTS_OF_LOSSES = frozenset({"target", "weight", "pos_weight"})
"""Arguments of a loss that a model does not learn."""


def is_bias_learned(part: Part) -> bool:
    """Autograd summed the gradient of what was added to the scores, as it does for a bias that is broadcast."""
    return any(u.base == "sum" and u.node.startswith(("AddBackward", "SubBackward")) for u in part.backward)


@dataclass(frozen=True, slots=True)
class Text:
    """text is None where the region cannot be written; missing says why. assumed: what the trace did not record."""

    text: str | None
    missing: str = ""
    assumed: tuple[str, ...] = ()


ODD = (KeyError, IndexError, AttributeError, TypeError, ValueError)
"""What arguments raise that no operation takes: anybody can write a trace."""


def _odd(error: Exception) -> Text:
    return Text(None, f"the recorded arguments do not fit the operation ({type(error).__name__}: {str(error)[:80]})")


def _fault_text(part: Part, error: Exception) -> Text:
    """A defect of ours costs one part its text, and goes to the log."""
    log.error("the part %r could not be written down", part.title, exc_info=error)
    return Text(None, f"writing it down failed ({type(error).__name__}: {str(error)[:80]})")


def bind(part: Part, graph: Graph) -> Flow | Text:
    """The part's flow, or why it has no text; never raises for what a trace holds."""
    if part.kind in NO_TEXT:
        return Text(None, NO_TEXT[part.kind])
    if part.period:
        return Text(None, "one operation over many tensors in turn is not written as a region")
    try:
        return flow(part, graph)
    except UnwritableError as lack:
        return Text(None, str(lack))
    except ODD as odd:
        return _odd(odd)
    except Exception as error:
        return _fault_text(part, error)


def write(part: Part, bound: Flow) -> Text:
    """The text of one part; never raises for what a trace holds."""

    def written() -> tuple[str, Sequence[str]]:
        writer = _Writer(part, bound)
        return fold(writer.text()), writer.assumed

    return _checked(part, written)


def write_over_many(part: Part, gradients: Gradients) -> Text:
    """The text of a part that `many_tensors` writes; never raises for what a trace holds."""

    def written() -> tuple[str, Sequence[str]]:
        made = write_many(part, gradients)
        return made.text, made.assumed

    return _checked(part, written)


def write_kernel(part: Part) -> Text:
    """The text of a kernel of torch.compile, or of one between two products; never raises for what a trace holds."""
    return _checked(part, lambda: write_compiled(part) if part.kind == "compiled" else write_attention(part))


def _checked(part: Part, written: Callable[[], tuple[str, Sequence[str]]]) -> Text:
    """What `written` gives, (text, what it assumes), where it parses and runs on fakes; else why there is no text."""
    try:
        text, assumed = written()
    except UnwritableError as lack:
        return Text(None, str(lack))
    except ODD as odd:
        return _odd(odd)
    except Exception as error:
        return _fault_text(part, error)
    try:
        region = parse(text)
        program(region)
        return Text(to_text(region), "", tuple(dict.fromkeys(assumed)))
    except RegionError as fault:
        return Text(None, f"the inferred region does not run: {fault.message}")
    except Exception as error:
        return _fault_text(part, error)


class _Writer:
    def __init__(self, part: Part, graph: Flow) -> None:
        self.part = part
        self.flow = graph
        self.names: dict[int, str] = {}
        self.assumed: list[str] = []
        self.letters_written = ""  # letters of the statements written so far

    def text(self) -> str:
        if not self.flow.inputs:
            raise UnwritableError("the operations read no tensor of the region's language")
        self._name_inputs()
        lines = [self._declare(v) for v in self.flow.inputs]
        last = self._last_reads()
        for at, statement in enumerate(self.flow.statements):
            source = self._expression(statement)
            self.assumed += [guess for guess in (statement.unit.guessed, statement.guessed) if guess]
            self._name_outputs(statement, at, last)
            names = [self.names[id(o)] for o in statement.outputs]
            for place in statement.call.undefined if len(names) == len(statement.call.outputs) else ():
                names.insert(place, "none")
            targets = ", ".join(names)
            if source != targets:
                lines.append(f"{targets} = {source}")
            if statement.own:
                self.letters_written += statement.letter
        lines.append("return " + ", ".join(self._return_text(v) for v in self.flow.outputs))
        return "\n".join(lines) + "\n"

    def _return_text(self, value: Value) -> str:
        name = self.names[id(value)]
        return f"view_as_real({name})" if value.sig.complex else name

    def _name_of(self, value: Value) -> str:
        """The value in an expression: a complex input is declared as its real and imaginary parts."""
        name = self.names[id(value)]
        return f"view_as_complex({name})" if value.sig.complex and value.producer is None else name

    def _last_reads(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for at, statement in enumerate(self.flow.statements):
            for values in statement.operands.values():
                last.update({id(v): at for v in values})
        for value in self.flow.outputs:
            last[id(value)] = len(self.flow.statements)
        return last

    def _declare(self, value: Value) -> str:
        sig = _parts(value.sig) if value.sig.complex else value.sig
        if sig.dtype not in ITEMSIZE:
            raise UnwritableError(f"dtype {sig.dtype or 'unknown'} is not part of the region language")
        shape = ", ".join(map(str, sig.dims)) or "()"
        name = self.names[id(value)]
        text = f"{name}: {sig.dtype}[{shape}]"
        if self._takes_gradient(value):
            text += ".requires_grad"
        if sig.strides is not None and sig.dims and not same_layout(sig.dims, sig.strides, contiguous(sig.dims)):
            rest = sig.dims[1:]
            last = (rest[1] * rest[2] * rest[0], 1, rest[2] * rest[0], rest[0]) if len(rest) == 3 else None
            spread = last is not None and same_layout(sig.dims, sig.strides, last)
            text += ".channels_last" if spread else f".strides({', '.join(map(str, sig.strides))})"
        if sig.dtype.startswith(("i", "u")):
            if value.offsets is not None:
                text += f".offsets({value.offsets})"
            elif value.below is not None:
                text += f".below({value.below})"
        return text

    def _takes_gradient(self, value: Value) -> bool:
        """A floating-point input of a region with a backward, unless it is a constant of the model or of the loss."""
        name = self.names[id(value)].rstrip("0123456789")
        if not self.part.backward or value.sig.dtype not in FLOATING or name in NO_GRADIENT:
            return False
        if self.part.kind == "attention" and name == "bias":
            return is_bias_learned(self.part)
        statement, argument = self._first_reader(value)
        return statement.unit.base not in (*LOSSES, *LIKELIHOODS) or argument not in CONSTANTS_OF_LOSSES

    def _first_reader(self, value: Value) -> tuple[Statement, str]:
        return next((s, n) for s in self.flow.statements for n, vs in s.operands.items() if any(v is value for v in vs))

    def _name_inputs(self) -> None:
        for value in self.flow.inputs:
            statement, argument = self._first_reader(value)
            name = self._role(statement, argument, value)
            used_names = set(self.names.values())
            number = 2
            unique = name
            while unique in used_names:
                unique = f"{name}{number}"
                number += 1
            self.names[id(value)] = unique

    def _role(self, statement: Statement, argument: str, value: Value) -> str:
        kind, base, rank = self.part.kind, statement.unit.base, len(value.sig.dims)
        first = value is self.flow.inputs[0]
        if value.sig.complex:
            larger = any(v.sig.elements > value.sig.elements for v in _operands(statement))
            return "freqs" if kind == "rope" and larger else "x"
        if kind == "attention" and self.part.by_hand:
            products = [s for s in self.flow.statements if s.own and s.letter == "M"]
            if statement is products[-1] and len(products) > 1:
                return "v"
            if statement.letter == "a":
                return "bias"
            if statement.letter in "tX":
                return next((r for r in "qkv" if r not in self.names.values()), "v")
            if statement.letter in "Mx" or not statement.own:
                return "q" if first else "k"
        half = self.part.letters.startswith("xx") and value.sig == self.flow.inputs[0].sig
        if kind == "rope" and statement.letter in "xX" and not first and not half:
            return "cos" if "cos" not in self.names.values() else "sin"
        if kind in ("swiglu", "geglu"):
            return "gate" if statement.letter in "ig" else "up"
        if (base, argument) in ROLES:
            return ROLES[base, argument]
        if not statement.own and value.role in ("other", "mat2"):
            return "w"
        if statement.letter == "a" and not first:
            return "residual" if rank > 1 and all(d > 1 for d in value.sig.dims) else "b"
        if statement.letter == "x" and not first:
            if kind in ("rms_norm", "layer_norm") or sum(d > 1 for d in value.sig.dims) <= 1:
                return "w"
            return "mask" if kind == "gemm_tail" else "a"
        if argument in GENERIC:
            return GENERIC[argument]
        return "x"

    def _name_outputs(self, statement: Statement, at: int, last: dict[int, int]) -> None:
        live = {
            self.names[id(v)] for s in self.flow.statements[: at + 1] for v in (*s.outputs, *_operands(s))
            if id(v) in self.names and last.get(id(v), -1) > at
        } | {self.names[id(v)] for v in self.flow.inputs if last.get(id(v), -1) > at}  # fmt: skip
        inputs = {self.names[id(v)] for v in self.flow.inputs}
        finals = {id(v) for v in self.flow.outputs}
        for value in statement.outputs:
            single = len(self.flow.outputs) == 1 and id(value) in finals
            name = "y" if single and "y" not in inputs else NAMES.get(statement.letter, "z")
            if name == "scores" and (self.part.kind != "attention" or "M" in self.letters_written):
                name = "z"
            if not statement.own and name == "z":
                operand = self.names.get(id(_operands(statement)[0]), "z")
                name = operand if operand in inputs and operand not in live else "z"
            unique, number = name, 2
            while unique in live or (unique in inputs and unique != name):
                unique = f"{name}{number}"
                number += 1
            self.names[id(value)] = unique
            live.add(unique)

    def _expression(self, statement: Statement) -> str:
        text: dict[str, str] = {}
        for name, argument in statement.call.arguments.items():
            if argument.kind in ("tensor", "tensors"):
                names = [self._name_of(v) for v in statement.operands[name]] if name in statement.operands else []
                if argument.kind == "tensors":
                    text[name] = f"[{', '.join(names)}]"
                elif names:
                    text[name] = names[0]
            elif argument.kind == "lost":
                text[name] = self._assume(statement, argument)
            elif argument.kind == "value":
                text[name] = literal(argument)
        return expression(Arguments(statement.unit.base, statement.call, text))

    def _assume(self, statement: Statement, argument: Argument) -> str:
        """A Python number that the trace lost: what it is in this place of what people write."""
        value, what = self._number(statement, argument)
        text = repr(value)
        self.assumed.append(f"{what} {text}")
        return text

    def _capped(self) -> bool:
        """The factor right before or behind the tanh of the scores."""
        letters, at = self.part.letters, len(self.letters_written)
        return letters[at + 1 : at + 2] == "h" or letters[max(0, at - 1) : at] == "h"

    def _number(self, statement: Statement, argument: Argument) -> tuple[float | int, str]:
        kind, symbol = self.part.kind, statement.letter
        if argument.sigs[0].dtype == "bool":
            return True, "the flag"
        if self.letters_written.endswith("R"):  # 1 / x is recorded as reciprocal, mul
            return 1, "the numerator"
        if argument.sigs[0].dtype == "i64":
            return (2 if symbol in "XV" or statement.unit.base == "floor_divide" else 1), "the whole number"
        if symbol == "P" and kind in ("rms_norm", "layer_norm"):
            return (
                1e-5 if kind == "layer_norm" else 1e-6
            ) if "r" not in self.letters_written and "q" not in self.letters_written else 1.0, "eps"
        if kind == "attention" and symbol in "XV" and self._capped():
            return CAP, "the cap of the scores"
        if kind == "attention" and symbol in "XV":
            head = next(v.sig.dims[-1] for v in self.flow.inputs if len(v.sig.dims) >= 2)
            return (math.sqrt(head) if symbol == "V" else head**-0.5), "the scale"
        if kind == "gelu_tanh":
            if symbol == "P":
                return 1.0, "the constant"
            if "h" in self.letters_written or "p" not in self.letters_written:
                return 0.5, "the constant"
            return (0.044715 if "a" not in self.letters_written else math.sqrt(2 / math.pi)), "the constant"
        if self.part.title == "GELU by hand" and "k" not in self.letters_written:
            before_erf = self.part.letters[len(self.letters_written) + 1 : len(self.letters_written) + 2] == "k"
            return (math.sqrt(2) if symbol == "V" else math.sqrt(0.5) if before_erf else 0.5), "the constant"
        if self.part.title == "QuickGELU by hand":
            return 1.702, "the factor"
        if symbol == "P" and kind == "scatter":
            return 1e-16, "eps"
        return {"X": 0.5, "V": 2.0}.get(symbol, 1.0), "the number"


CAP = 50.0
"""tanh(scores / 50) * 50, as Gemma 2 caps them."""


def _parts(sig: Sig) -> Sig:
    """Complex numbers as the pairs of real ones that lie in memory."""
    strides = None if sig.strides is None else (*(2 * s for s in sig.strides), 1)
    return Sig("f32" if sig.dtype == "c64" else "f64", (*sig.dims, 2), strides)


def _operands(statement: Statement) -> list[Value]:
    return [v for vs in statement.operands.values() for v in vs]
