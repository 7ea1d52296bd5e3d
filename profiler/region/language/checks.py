"""What CUDA refuses and fake mode accepts, and how operations and operands are named in errors.

FakeTensor runs the shape functions of torch, which leave most of the dtype checks to the kernels. Those checks are made
here, on the aten operations below a call: `linear`, `@` and `einsum` all come down to mm, bmm or addmm.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
import torch.fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.region.language import vocabulary
from profiler.region.language.opaque_ops import whole_operations
from profiler.region.language.signatures import Args, Kwargs, Target
from profiler.region.language.syntax import error
from profiler.region.limits import BACKWARD, BACKWARD_OF, MAX_LOWERED

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
FLOAT4 = torch.float4_e2m1fn_x2
INDEX = (torch.int64, torch.int32)


class RefusedError(Exception):
    """An operation that a GPU would refuse."""

    def __init__(self, message: str, *, hint: str = "", code: str = "region-dtype") -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def label_of(target: object) -> str:
    """As the user would name it: gelu, @, add."""
    if isinstance(target, str):
        return target
    name = str(getattr(target, "__name__", target)).removeprefix("aten.").removeprefix("aten::")
    return {"truediv": "div", "getitem": "index"}.get(name, name)


def nodes_in(args: Args, kwargs: Kwargs) -> list[torch.fx.Node]:
    """The nodes among a call's arguments, as often as each is given, in nested tuples, lists and mappings too."""
    nodes: list[torch.fx.Node] = []
    torch.fx.node.map_arg((tuple(args), dict(kwargs)), nodes.append)
    return nodes


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples and lists, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def refuse(node: ast.AST, target: Target, args: Args, kwargs: Kwargs) -> None:
    """What is refused by the name of the call: strings that are no options, a softmax over no dimension."""
    tensors = list(tensors_in(args))
    equations = args[:1] if target is torch.einsum else ()
    if target is torch.einsum:
        _refuse_operands(node, args)
    for text in (a for a in (*args, *kwargs.values()) if isinstance(a, str)):
        if text not in vocabulary.STRINGS and text not in equations:
            raise error(node, f"{text[:30]!r} is no option", code="region-type")
    if label_of(target) == "linear" and len(tensors) == 3:
        _refuse_bias(node, *tensors)
    if label_of(target) in ("softmax", "log_softmax", "softmin") and tensors:
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        rank = max(1, tensors[0].dim())
        if isinstance(dim, int) and not -rank <= dim < rank:
            raise error(node, f"dimension {dim} of a tensor of {tensors[0].dim()} dimensions", code="region-shape")
        if dim is None and label_of(target) != "softmin" and tensors[0].dim():
            raise error(node, f"{label_of(target)} needs a dimension", hint="softmax(x, -1)", code="region-type")


def _refuse_operands(node: ast.AST, args: Args) -> None:
    """einsum takes an equation and tensors, or a tensor and the list of its letters, in turn: torch tells the two apart
    by the first alone, and goes through a tensor that stands for letters element by element.
    """
    by_letters = bool(args) and isinstance(args[0], torch.Tensor)
    if by_letters and any(isinstance(a, torch.Tensor) for a in args[1::2][: len(args) // 2]):
        message = "einsum takes an equation before the tensors, not a tensor"
        raise error(node, message, hint="einsum('ij,jk->ik', x, y)", code="region-type")
    if not by_letters and not (args and isinstance(args[0], str)):
        message = "einsum takes an equation first"
        raise error(node, message, hint="einsum('ij,jk->ik', x, y)", code="region-type")


def _refuse_bias(node: ast.AST, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """A bias is added in place: it does not widen the result. The fake adds it as + does."""
    result = [*x.shape[:-1], *weight.shape[:-1]]
    sizes = list(bias.shape)
    if len(sizes) > len(result) or any(b not in (1, m) for b, m in zip(sizes[::-1], result[::-1], strict=False)):
        raise error(node, f"a bias of the shape {sizes} for a result of {result}", code="region-shape")


class Checking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every aten operation on its way to the FakeTensorMode below, and counts them; raises RefusedError.

    lowered: operations so far, with what their gradients add; gradient: one passes through the call in hand.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lowered = 0
        self.gradient = False

    def count(self, number: int, what: str) -> None:
        """So many operations more."""
        self.lowered += number
        if self.lowered > MAX_LOWERED:
            backward = ", counted with their backward" if self.gradient else ""
            message = f"with {what} the region comes to more than {MAX_LOWERED:,} operations of torch{backward}"
            raise RefusedError(message, hint="write fewer rounds, or a part of it", code="region-too-long")

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:  # fmt: skip
        kwargs = kwargs or {}
        if func.namespace != "prim":  # prim.device and the like ask a tensor, and are free
            self.count(1 + (_backward_of(func) if self.gradient else 0), func.overloadpacket.__name__)
        check(func, args, kwargs)
        if func is torch.ops.aten.bincount.default:  # on fakes its size is not known
            return sized_bincount(*args, **kwargs)
        return func(*args, **kwargs)


def sized_bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """bincount of values that are all below `minlength`. Raises RefusedError where that is not given.

    Whether they are below it is not seen here, by the shapes alone: the recorder refuses those of which the text does
    not say so.
    """
    if minlength < 1:
        hint = "torch.bincount(x, minlength=n), of x: i64[600].below(n)"
        raise RefusedError("the size of this depends on the data", hint=hint, code="region-shape")
    if x.dim() != 1 or x.dtype.is_floating_point or x.dtype == torch.bool:
        raise RefusedError("bincount takes one dimension of integers")
    if weights is not None and weights.shape != x.shape:
        raise RefusedError("bincount takes a weight for each value", code="region-shape")
    counted: torch.Tensor = whole_operations().bincount(x, weights, minlength)
    return counted


def _backward_of(function: OpOverload) -> int:
    if is_view(function):
        return 1
    return BACKWARD_OF.get(function.overloadpacket.__name__, BACKWARD)


def is_view(function: OpOverload) -> bool:
    """What comes out shares the memory of what goes in, and nothing is written."""
    returns = function._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def check(function: OpOverload, args: Args, kwargs: Kwargs) -> None:
    """Raises RefusedError where CUDA has no kernel for these operands."""
    if function.namespace != "aten":
        return
    name = function.overloadpacket.__name__
    tensors = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
    if any(t.dtype in FLOAT8 for t in tensors) and not _takes_float8(function, name):
        raise RefusedError(f"{name} does not take fp8", hint="cast with .float()")
    if any(t.dtype == FLOAT4 for t in tensors) and not (is_view(function) or "scaled" in name):
        raise RefusedError(f"{name} does not take f4", hint="torch has views of f4 and torch._scaled_mm alone")
    if kwargs.get("dtype") == FLOAT4 and name not in ("_to_copy", "empty", "empty_strided"):
        raise RefusedError(f"{name} does not make f4", hint="take the packed numbers as an input")
    if name == "_to_copy" and kwargs.get("dtype") == FLOAT4:
        raise RefusedError("torch has no cast to f4", hint="take the packed numbers as an input")
    if name.startswith("_scaled_mm") and len({t.dtype == FLOAT4 for t in tensors[:2]}) > 1:
        message = f"a product of {_dtypes(tensors[:2])}: both factors are packed, or neither is"
        raise RefusedError(message, hint="torch has no mixed products of block formats")
    rule = _RULES.get(name) or _RULES.get(name.removesuffix("_"))
    if rule is not None:
        rule(name, tensors, args, kwargs)


def _takes_float8(function: OpOverload, name: str) -> bool:
    """What only moves bytes: views, copies, casts, gathers; and the scaled products."""
    return is_view(function) or "scaled" in name or name in FLOAT8_MOVES


FLOAT8_MOVES = frozenset(
    """_to_copy clone copy_ cat stack index_select index gather index_put index_put_ contiguous empty_like zeros_like
    ones_like full_like new_zeros new_empty new_ones new_full fill_ zero_ fill detach _unsafe_view reshape embedding
    constant_pad_nd unsafe_split unsafe_chunk eq ne flip roll""".split()
)

Rule = Callable[[str, list[torch.Tensor], Args, Kwargs], None]


def dtype_name(dtype: torch.dtype) -> str:
    """bf16 for torch.bfloat16."""
    return vocabulary.DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _dtypes(tensors: list[torch.Tensor]) -> str:
    return " and ".join(sorted({dtype_name(t.dtype) for t in tensors}))


def _product(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    """cuBLAS: one dtype, and no integers."""
    if len({t.dtype for t in tensors}) > 1:
        message = f"a matrix product of {_dtypes(tensors)}: dtypes must be equal"
        raise RefusedError(message, hint=f"cast one with .to({dtype_name(tensors[0].dtype)})")
    if not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        message = f"CUDA has no matrix product of {dtype_name(tensors[0].dtype)}"
        raise RefusedError(message, hint="cast with .to(bf16), or torch._int_mm for i8")


def _check_groups(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    _product(name, tensors[:2])  # the third are the groups' offsets


def _int_product(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if any(t.dtype != torch.int8 for t in tensors):
        raise RefusedError(f"_int_mm takes i8, not {_dtypes(tensors)}")
    (m, k), n = tensors[0].shape, tensors[1].shape[-1]
    if m <= 16 or k % 8 or n % 8:
        message = f"_int_mm needs more than 16 rows and multiples of 8, not {m}, {k}, {n}"
        raise RefusedError(message, code="region-shape")


def _same(what: str) -> Rule:
    """All tensors in one dtype."""

    def rule(name: str, tensors: list[torch.Tensor], *_: object) -> None:
        if len({t.dtype for t in tensors}) > 1:
            message = f"{what} of {_dtypes(tensors)}: dtypes must be equal"
            raise RefusedError(message, hint=f"cast with .to({dtype_name(tensors[0].dtype)})")
        _floating(name, tensors)

    return rule


def _floating(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    """The first operand is floating."""
    if tensors and not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        label = _LABELS.get(name, name.removeprefix("native_").removeprefix("_").removesuffix("_with_indices"))
        raise RefusedError(
            f"{label} needs a floating type, not {dtype_name(tensors[0].dtype)}", hint="cast with .float()"
        )


_LABELS = {"convolution": "a convolution", "nll_loss_forward": "nll_loss", "nll_loss2d_forward": "nll_loss"}


def _softmax(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    _floating(name, tensors)
    if len(args) > 1 and isinstance(args[1], int):
        _in_range(tensors[0], args[1])


def _not_bool(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if tensors and all(t.dtype == torch.bool for t in tensors):
        hint = "use ^ or logical_xor" if name in ("sub", "rsub") else "cast with .int()"
        raise RefusedError(f"{name.strip('_')} does not take bool", hint=hint)


def _bits(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if any(t.is_floating_point() or t.is_complex() for t in tensors):
        raise RefusedError("bitwise operators need integers or bool", hint="compare first: x > 0")
    if "shift" in name:
        _not_bool(name, tensors)


def _whole(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if any(t.is_floating_point() or t.dtype == torch.bool for t in tensors):
        raise RefusedError(f"{name} takes integers")


def _floating_or_u8(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if tensors[0].dtype != torch.uint8:
        _floating(name, tensors)


def _bernoulli(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    if len(args) == 1:  # with a rate, the tensor's type is only the result's
        _floating(name, tensors)


def _boundaries(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if tensors[-1].dim() != 1:
        raise RefusedError(f"boundaries have one dimension, not {tensors[-1].dim()}", code="region-shape")


def _not_two_bools(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    if len(tensors) > 1:  # with a number, a bool is promoted
        _not_bool(name, tensors)


def _mean(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
    if kwargs.get("dtype") is None:
        _floating(name, tensors)


def _multinomial(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    _floating(name, tensors)
    replaced = len(args) > 2 and args[2] is True
    if not replaced and tensors[0].dim() and isinstance(args[1], int) and args[1] > tensors[0].shape[-1]:
        message = f"{args[1]} samples of {tensors[0].shape[-1]} without replacement"
        raise RefusedError(message, code="region-shape")


def _sort(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
    dims = [a for a in (*args[1:], *kwargs.values()) if type(a) is int]
    _in_range(tensors[0], dims[0] if dims else -1)


def _in_range(tensor: torch.Tensor, dim: int) -> None:
    rank = max(1, tensor.dim())
    if not -rank <= dim < rank:
        raise RefusedError(f"dimension {dim} of a tensor of {tensor.dim()} dimensions", code="region-shape")


def _power(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    _not_two_bools(name, tensors)
    integers = not any(t.is_floating_point() or t.is_complex() for t in tensors)
    if integers and len(args) > 1 and isinstance(args[1], int) and args[1] < 0:
        raise RefusedError("integers to a negative power are not allowed", hint="cast with .float()")


def _index_at(position: int, dtypes: tuple[torch.dtype, ...] = INDEX) -> Rule:
    """The tensor argument at a position is an index."""

    def rule(name: str, _: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
        index = args[position] if len(args) > position else kwargs.get("index")
        if isinstance(index, torch.Tensor) and index.dtype not in dtypes:
            names = " or ".join(dtype_name(d) for d in dtypes)
            raise RefusedError(
                f"{name} takes an index of {names}, not {dtype_name(index.dtype)}", hint="cast with .long()"
            )

    return rule


def _check_gather(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
    """An index, and something to take: from a dimension of no elements the fakes take all the same."""
    _index_at(1 if name == "embedding" else 2)(name, tensors, args, kwargs)
    x = args[0]
    index, dim = (args[1], 0) if name == "embedding" else (args[2], args[1])
    if isinstance(index, torch.Tensor) and isinstance(dim, int):
        _in_range(x, dim)
        if x.dim() and x.shape[dim] == 0 and index.numel() > 0:
            raise RefusedError(f"{name} from dimension {dim}, which has no elements", code="region-shape")


def _batch_norm(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    _floating(name, tensors)
    if tensors[0].dim() < 2:
        message = f"a batch norm needs a dimension of channels after the batch's, not {tensors[0].dim()} dimensions"
        raise RefusedError(message, code="region-shape")


def _check_index_select(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
    """The fake takes an index of any rank, the kernels one row of places."""
    _check_gather(name, tensors, args, kwargs)
    index = args[2]
    if not args[0].dim() and index.numel() != 1:
        raise RefusedError(f"index_select of a scalar takes one place, not {index.numel()}", code="region-shape")
    if index.dim() > 1:
        message = f"index_select takes an index of one dimension, not {index.dim()}"
        raise RefusedError(message, hint="x[index] takes any", code="region-shape")


def _not_of_nothing(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
    """The largest of no elements is no number: the fake gives one all the same."""
    x = tensors[0]
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    if isinstance(dim, int):
        _in_range(x, dim)
        if x.dim() and x.shape[dim] == 0:
            raise RefusedError(f"{name} over dimension {dim}, which has no elements", code="region-shape")
    elif len(tensors) == 1 and x.numel() == 0:
        raise RefusedError(f"{name} of a tensor that has no elements", code="region-shape")


def _moves_into(index: Rule, source: int) -> Rule:
    """An index, and a source of the destination's dtype."""

    def rule(name: str, tensors: list[torch.Tensor], args: Args, kwargs: Kwargs) -> None:
        index(name, tensors, args, kwargs)
        value = args[source] if len(args) > source else kwargs.get("src", kwargs.get("source"))
        if isinstance(value, torch.Tensor) and value.dtype != args[0].dtype:
            message = f"{name} of {dtype_name(value.dtype)} into {dtype_name(args[0].dtype)}: dtypes must be equal"
            raise RefusedError(message, hint=f"cast with .to({dtype_name(args[0].dtype)})")

    return rule


def _indices(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    _into_something(args[0], args[1])
    for index in tensors_in(args[1]):
        if index.dtype not in (*INDEX, torch.bool, torch.uint8):
            raise RefusedError(f"an index is i64 or i32, not {dtype_name(index.dtype)}", hint="cast with .long()")
    if name.startswith("index_put") and len(args) > 2 and args[2].dtype != args[0].dtype:
        message = f"index_put of {dtype_name(args[2].dtype)} into {dtype_name(args[0].dtype)}: dtypes must be equal"
        raise RefusedError(message, hint=f"cast with .to({dtype_name(args[0].dtype)})")

    if name.startswith("index_put") and len(args) > 2 and all(i.dtype in INDEX for i in tensors_in(args[1])):
        _fits(args[2], torch.ops.aten.index.Tensor(args[0], args[1]))


def _into_something(x: torch.Tensor, indices: Iterable[object]) -> None:
    """Places in a dimension of no elements: the fake takes them."""
    position = 0
    for index in indices:
        empty = position < x.dim() and x.shape[position] == 0
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            position += index.dim()
            continue
        if isinstance(index, torch.Tensor) and empty and index.numel() > 0:
            raise RefusedError(f"an index into dimension {position}, which has no elements", code="region-shape")
        position += 1


def _fits(value: torch.Tensor, places: torch.Tensor) -> None:
    """What is put is broadcast over the places, and these are not over it."""
    sizes, expected = list(value.shape), list(places.shape)
    if len(sizes) > len(expected) or any(a not in (1, b) for a, b in zip(sizes[::-1], expected[::-1], strict=False)):
        message = f"values of the shape {sizes} put into places of the shape {expected}"
        raise RefusedError(message, code="region-shape")


def _check_search(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    edges, values = args[0], args[1]
    rank = values.dim() if isinstance(values, torch.Tensor) else 0
    alike = rank == edges.dim() and list(edges.shape[:-1]) == list(values.shape[:-1])
    if edges.dim() == 0 or (edges.dim() > 1 and not alike):
        message = f"searchsorted of {rank} dimensions in boundaries of {edges.dim()}"
        raise RefusedError(message, hint="all but the last dimension are the same", code="region-shape")


def _condition(name: str, tensors: list[torch.Tensor], args: Args, *_: object) -> None:
    mask = args[0] if name == "where" else args[1]
    allowed = (torch.bool, torch.uint8) if name == "where" else (torch.bool,)
    if isinstance(mask, torch.Tensor) and mask.dtype not in allowed:
        raise RefusedError(
            f"the condition of {name} is bool, not {dtype_name(mask.dtype)}", hint="compare it: mask != 0"
        )


def _target(name: str, tensors: list[torch.Tensor], *_: object) -> None:
    _floating(name, tensors)
    if tensors[1].dtype not in (torch.int64, torch.uint8):
        raise RefusedError(f"the target is i64, not {dtype_name(tensors[1].dtype)}", hint="cast with .long()")
    expected = [*tensors[0].shape[:1], *tensors[0].shape[2:]]
    if name.startswith("nll_loss2d") and list(tensors[1].shape) != expected:
        message = f"a target of the shape {list(tensors[1].shape)} for {list(tensors[0].shape)}"
        raise RefusedError(message, hint=f"the target has the shape {expected}", code="region-shape")
    if len(tensors) > 2 and tensors[2].dtype != tensors[0].dtype:
        raise RefusedError(
            f"weights of {dtype_name(tensors[2].dtype)} for {dtype_name(tensors[0].dtype)}: dtypes must be equal"
        )


_TABLE: Mapping[str, Rule] = {
    "mm bmm addmm baddbmm addbmm mv addmv dot vdot addr ger _addmm_activation": _product,
    "_grouped_mm": _check_groups,
    "_int_mm": _int_product,
    "convolution _convolution cudnn_convolution": _same("a convolution"),
    "native_layer_norm": _same("a layer norm"),
    "native_group_norm": _same("a group norm"),
    "binary_cross_entropy": _same("binary_cross_entropy"),
    "_softmax _log_softmax _safe_softmax": _softmax,
    """gelu silu elu leaky_relu softplus hardswish hardsigmoid mish log_sigmoid_forward hardshrink softshrink celu glu
    native_dropout _fused_rms_norm var std var_mean std_mean
    linalg_vector_norm norm avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    lerp hypot logaddexp logaddexp2 rand_like randn_like soft_margin_loss mse_loss smooth_l1_loss huber_loss
    grid_sampler_2d _prelu_kernel _cdist_forward logcumsumexp segment_reduce frac""": _floating,
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm": _batch_norm,
    "mean": _mean,
    "multinomial": _multinomial,
    """sub rsub neg argmax argmin topk kthvalue median nanmedian abs ceil floor round trunc relu
    cross linalg_cross""": _not_bool,
    "floor_divide remainder fmod": _not_two_bools,
    """bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
    __lshift__ __rshift__""": _bits,
    "gcd lcm": _whole,
    "sort": _sort,
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d": _floating_or_u8,
    "bernoulli": _bernoulli,
    "bucketize": _boundaries,
    "searchsorted": _check_search,
    "pow": _power,
    "gather embedding": _check_gather,
    "take": _index_at(1, (torch.int64,)),
    "index_select": _check_index_select,
    "index_fill": _index_at(2, (torch.int64,)),
    "max min mode": _not_of_nothing,
    "scatter scatter_add scatter_reduce index_add index_reduce": _moves_into(_index_at(2), 3),
    "index_copy": _moves_into(_index_at(2, (torch.int64,)), 3),
    "index index_put _unsafe_index _unsafe_index_put": _indices,
    "where masked_fill masked_scatter": _condition,
    "nll_loss_forward nll_loss2d_forward": _target,
}
_RULES: Mapping[str, Rule] = {name: rule for names, rule in _TABLE.items() for name in names.split()}
