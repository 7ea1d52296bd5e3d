"""What the generator knows: aten operation -> Triton expression. Text is built from these entries only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLOAT = "float"  # operands and result are computed in f32 (f64 where the result is f64)
SAME = "same"  # computed in the result's dtype
COMPARE = "compare"  # computed in the dtype that the operands promote to; the result is bool
LOGICAL = "logical"  # operands become bool; the result is bool


@dataclass(frozen=True, slots=True)
class Pointwise:
    """One pointwise operation. {0}, {1}, ... are its tensor or number operands, in the schema's order.

    exact is used where a result is stored as f32 or wider, short where only 16-bit results are stored.
    """

    text: str
    domain: str = SAME
    exact: str = ""
    short: str = ""
    boolean: str = ""  # where the computed dtype is bool
    integer: str = ""  # where it is an integer; "-" = not for integers

    def form(self, dtype: str, precise: bool) -> str | None:
        """The text for a computed dtype, None where the operation does not take it."""
        if dtype == "bool":
            chosen = self.boolean or self.integer or self.text
        elif dtype.startswith(("i", "u")):
            chosen = self.integer or self.text
        elif dtype == "f64":
            chosen = self.text
        else:
            chosen = (self.exact if precise else self.short) or self.text
        return None if chosen == "-" else chosen


P = Pointwise

POINTWISE: Mapping[str, Pointwise] = {
    "add": P("{0} + {1}", boolean="{0} | {1}"),
    "sub": P("{0} - {1}", boolean="-"),
    "mul": P("{0} * {1}", boolean="{0} & {1}"),
    "div": P("{0} / {1}", FLOAT, exact="tl.div_rn({0}, {1})"),
    "true_divide": P("{0} / {1}", FLOAT, exact="tl.div_rn({0}, {1})"),
    "neg": P("-{0}", boolean="-"),
    "abs": P("tl.abs({0})", boolean="{0}"),
    "reciprocal": P("1.0 / {0}", FLOAT, exact="tl.div_rn(1.0, {0})"),
    "square": P("{0} * {0}"),
    "exp": P("tl.exp({0})", FLOAT),
    "exp2": P("tl.exp2({0})", FLOAT),
    "expm1": P("expm1({0})", FLOAT),
    "log": P("tl.log({0})", FLOAT),
    "log2": P("tl.log2({0})", FLOAT),
    "log10": P("tl.log({0}) * 0.4342944819032518", FLOAT),
    "log1p": P("log1p({0})", FLOAT),
    "sqrt": P("tl.sqrt({0})", FLOAT, exact="tl.sqrt_rn({0})"),
    "rsqrt": P("tl.rsqrt({0})", FLOAT),
    "sin": P("tl.sin({0})", FLOAT),
    "cos": P("tl.cos({0})", FLOAT),
    "erf": P("tl.erf({0})", FLOAT),
    "sigmoid": P("tl.sigmoid({0})", FLOAT),
    "tanh": P("tanh({0})", FLOAT),
    "silu": P("{0} * tl.sigmoid({0})", FLOAT),
    "gelu": P("0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))", FLOAT, short="{0} * normal_cdf({0})"),
    "gelu_tanh": P("{0} * tl.sigmoid(1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0}))", FLOAT),
    "relu": P("tl.where({0} < 0, 0, {0})"),
    "relu6": P("tl.where({0} < 0, 0, tl.where({0} > 6, 6, {0}))"),
    "hardtanh": P("tl.where({0} < {1}, {1}, tl.where({0} > {2}, {2}, {0}))"),
    "hardsigmoid": P("tl.where({0} < -3, 0.0, tl.where({0} > 3, 1.0, ({0} + 3) * 0.16666666666666666))", FLOAT),
    "hardswish": P("{0} * tl.where({0} < -3, 0.0, tl.where({0} > 3, 1.0, ({0} + 3) * 0.16666666666666666))", FLOAT),
    "leaky_relu": P("tl.where({0} > 0, {0}, {0} * {1})", FLOAT),
    "elu": P("tl.where({0} > 0, {0} * {2}, {1} * {2} * expm1({0} * {3}))", FLOAT),
    "celu": P("tl.where({0} > 0, {0}, {1} * expm1({0} / {1}))", FLOAT),
    "softplus": P("tl.where({0} * {1} > {2}, {0}, log1p(tl.exp({0} * {1})) / {1})", FLOAT),
    "mish": P("{0} * tanh(tl.where({0} > 20, {0}, log1p(tl.exp({0}))))", FLOAT),
    "log_sigmoid_forward": P("tl.where({0} < 0, {0}, 0) - log1p(tl.exp(-tl.abs({0})))", FLOAT),
    "threshold": P("tl.where({0} <= {1}, {2}, {0})"),
    # the upper bound last: it wins where the lower one is above it
    "clamp_both": P(
        "tl.minimum(tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL), {2}, propagate_nan=tl.PropagateNan.ALL)",
        integer="tl.minimum(tl.maximum({0}, {1}), {2})",
    ),
    "clamp_min": P("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", integer="tl.maximum({0}, {1})"),
    "clamp_max": P("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", integer="tl.minimum({0}, {1})"),
    "maximum": P("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", integer="tl.maximum({0}, {1})",
                 boolean="{0} | {1}"),
    "minimum": P("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", integer="tl.minimum({0}, {1})",
                 boolean="{0} & {1}"),
    "fmax": P("tl.maximum({0}, {1})"),
    "fmin": P("tl.minimum({0}, {1})"),
    "floor": P("tl.floor({0})", integer="{0}"),
    "ceil": P("tl.ceil({0})", integer="{0}"),
    "trunc": P("tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))", integer="{0}"),
    "round": P("round_half_even({0})", integer="{0}"),
    **dict.fromkeys(("sign", "sgn"), P(
        "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to(tl.float64)",
        exact="tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",  # 0 for NaN, as aten
        short="tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
        integer="tl.where({0} > 0, 1, tl.where({0} < 0, -1, {0} * 0))",
        boolean="{0}",
    )),
    "addcmul": P("{0} + {3} * {1} * {2}"),
    "addcdiv": P("{0} + {3} * {1} / {2}", FLOAT),
    "lerp": P("{0} + {2} * ({1} - {0})", FLOAT),
    "pow": P("power({0}, {1})", FLOAT),
    "logaddexp": P("log_add({0}, {1})", FLOAT),
    # of integers alone: for floats aten has an exact fmod, which Triton has not
    "remainder": P("floor_mod({0}, {1})"),
    "floor_divide": P("floor_divide({0}, {1})"),
    "fmod": P("{0} % {1}"),
    "trunc_divide": P("{0} // {1}"),
    "isnan": P("{0} != {0}", COMPARE),
    "isinf": P('tl.abs({0}) == float("inf")', COMPARE, integer="-"),
    "isposinf": P('{0} == float("inf")', COMPARE, integer="-"),
    "isneginf": P('{0} == float("-inf")', COMPARE, integer="-"),
    "eq": P("{0} == {1}", COMPARE),
    "ne": P("{0} != {1}", COMPARE),
    "lt": P("{0} < {1}", COMPARE),
    "le": P("{0} <= {1}", COMPARE),
    "gt": P("{0} > {1}", COMPARE),
    "ge": P("{0} >= {1}", COMPARE),
    "logical_and": P("{0} & {1}", LOGICAL),
    "logical_or": P("{0} | {1}", LOGICAL),
    "logical_xor": P("{0} ^ {1}", LOGICAL),
    "logical_not": P("{0} == 0", LOGICAL),
    "bitwise_and": P("{0} & {1}"),
    "bitwise_or": P("{0} | {1}"),
    "bitwise_xor": P("{0} ^ {1}"),
    "bitwise_not": P("~{0}", boolean="{0} == 0"),
    "bitwise_left_shift": P("{0} << {1}"),
    "bitwise_right_shift": P("{0} >> {1}"),
    "__and__": P("{0} & {1}"),
    "__or__": P("{0} | {1}"),
    "__xor__": P("{0} ^ {1}"),
    "__lshift__": P("{0} << {1}"),
    "__rshift__": P("{0} >> {1}"),
    # backward formulas: {0} is the upstream gradient
    "sigmoid_backward": P("{0} * {1} * (1.0 - {1})", FLOAT),
    "tanh_backward": P("{0} * (1.0 - {1} * {1})", FLOAT),
    "threshold_backward": P("tl.where({1} <= {2}, 0, {0})"),
    "silu_backward": P("{0} * tl.sigmoid({1}) * (1.0 + {1} * (1.0 - tl.sigmoid({1})))", FLOAT),
    "gelu_backward": P(
        "{0} * (0.5 * (1.0 + tl.erf({1} * 0.7071067811865476))"
        " + {1} * 0.3989422804014327 * tl.exp(-0.5 * {1} * {1}))",
        FLOAT,
        short="{0} * (normal_cdf({1}) + {1} * 0.3989422804014327 * tl.exp(-0.5 * {1} * {1}))",
    ),
    "gelu_tanh_backward": P("{0} * gelu_tanh_slope({1})", FLOAT),
}  # fmt: skip

CASTS = frozenset({"_to_copy", "clone", "contiguous", "lift_fresh_copy", "copy"})
"""Operations that give their operand's values, in the result's dtype."""

REDUCTIONS: Mapping[str, str] = {
    "sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "var": "var", "var_mean": "var_mean", "std": "std",
    "all": "all", "any": "any", "logsumexp": "logsumexp", "linalg_vector_norm": "norm",
    "_softmax": "softmax", "_safe_softmax": "softmax", "_log_softmax": "log_softmax",
    "_softmax_backward_data": "softmax_backward",
    "_log_softmax_backward_data": "log_softmax_backward",
    "native_layer_norm": "layer_norm", "rms_norm": "rms_norm", "_fused_rms_norm": "rms_norm",
    "prod": "prod", "argmax": "argmax", "argmin": "argmin",
}  # fmt: skip
"""Operations that reduce over the last dimensions, and how."""

SCANS: Mapping[str, str] = {
    "cumsum": "sum", "cumprod": "prod", "logcumsumexp": "log_sums", "cummax": "nan_max", "cummin": "nan_min",
}  # fmt: skip
"""Operations that run along one dimension, and how."""

PLACED_SCANS: Mapping[str, str] = {"cummax": "latest_largest", "cummin": "latest_smallest"}
"""Those that give places as well, and how."""

PICKS = frozenset({"sort", "topk"})
"""Operations that order a row: what they give is values and places."""

ROWWISE = frozenset({*REDUCTIONS, *SCANS, *PICKS})
"""Operations whose result takes a walk over a row."""

FILLS = frozenset({
    "full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "scalar_tensor", "arange",
    "new_full", "new_zeros", "new_ones", "fill",
})  # fmt: skip
"""Operations whose result is known without reading memory."""

VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "expand", "permute", "transpose",
    "t", "slice", "select", "alias", "detach", "lift_fresh", "broadcast_to", "numpy_T",
})  # fmt: skip
"""Views that only change the index."""

HELPERS: Mapping[str, str] = {
    "normal_cdf": '''@triton.jit
def normal_cdf(x):
    """Share of the normal distribution below x, within a relative 1e-4 to x = -5: for results of 16 bits.

    1 / (1 + exp(-f)), f a polynomial of least error for the log-odds: half the arithmetic of erf.
    """
    s = x * x
    f = -6.35546852e-06 + s * (1.70808608e-07 + s * -1.7874653e-09)
    f = -2.30165191 + s * (-0.105607947 + s * (0.000415626728 + s * (0.000101514337 + s * f)))
    return 1.0 / (1.0 + tl.exp2(x * f))
''',
    "tanh": '''@triton.jit
def tanh(x):
    """tanh from exp, and its series where 1 - exp(-2x) would cancel: Triton has it only in libdevice."""
    a = tl.abs(x)
    e = tl.exp(-2.0 * a)
    s = a * a
    series = a * (1.0 + s * (-0.3333333333333333 + s * (0.13333333333333333 + s * -0.05396825396825397)))
    y = tl.where(a < 0.1, series, (1.0 - e) / (1.0 + e))
    return tl.where(x < 0, -y, y)
''',
    "expm1": '''@triton.jit
def expm1(x):
    """exp(x) - 1, by its series where the difference would cancel."""
    series = x * (1.0 + x * (0.5 + x * (0.16666666666666666 + x * (0.041666666666666664 + x * 0.008333333333333333))))
    return tl.where(tl.abs(x) < 0.1, series, tl.exp(x) - 1.0)
''',
    "log1p": '''@triton.jit
def log1p(x):
    """log(1 + x), corrected for the rounding of 1 + x."""
    u = 1.0 + x
    d = u - 1.0
    corrected = tl.log(u) * (x / tl.where(d == 0, 1.0, d))
    return tl.where(d == 0, x, tl.where(u == float("inf"), u, corrected))
''',
    "power": '''@triton.jit
def power(x, p):
    """x ** p; NaN for a negative x and a p that is not whole."""
    p = tl.zeros_like(x) + p
    magnitude = tl.exp2(p * tl.log2(tl.abs(x)))
    whole = tl.floor(p) == p
    odd = whole & (tl.floor(p * 0.5) * 2.0 != p)
    signed = tl.where((x < 0) & odd, -magnitude, magnitude)
    result = tl.where((x < 0) & (whole == 0), float("nan"), signed)
    return tl.where(p == 0, 1.0, result)
''',
    "gelu_tanh_slope": '''@triton.jit
def gelu_tanh_slope(x):
    """Derivative of the tanh form of GELU."""
    s = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return s + x * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * x * x)
''',
    "over_row": '''@triton.jit
def over_row(x, divisor):
    """x / divisor, rounded as tl.div_rn rounds: one division for a whole row, products for each element.

    A quotient by the reciprocal, corrected by how far it misses x; next to it where either is below 2^-100.
    """
    if INTERPRETED:  # whose fma rounds twice
        return tl.div_rn(x, divisor)
    size = tl.abs(divisor)
    small, large = 5.421010862427522e-20, 1.8446744073709552e19  # 2^-64 and 2^64 keep the reciprocal in range
    scale = tl.where(size > large, small, tl.where(size < small, large, 1.0))
    divisor *= scale
    inverse = tl.div_rn(1.0, divisor)
    x *= scale
    quotient = x * inverse
    beyond = tl.fma(quotient, divisor, -x)
    return tl.where(tl.abs(beyond) < 1e38, tl.fma(-beyond, inverse, quotient), quotient)  # not of infinities
''',
    "nan_max": '''@triton.jit
def nan_max(a, b):
    """The larger one, NaN where either is: as torch.amax."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "nan_min": '''@triton.jit
def nan_min(a, b):
    """The smaller one, NaN where either is: as torch.amin."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "whole_max": '''@triton.jit
def whole_max(a, b):
    """The larger of two integers, for tl.reduce, in 64 bits.

    In 32 bits a compiler below Triton 3.6.0 took the least of a negated i32 row for another number (H100, H200).
    """
    return tl.where(a > b, a, b)
''',
    "whole_min": '''@triton.jit
def whole_min(a, b):
    """The smaller of two integers, for tl.reduce, in 64 bits.

    In 32 bits a compiler below Triton 3.6.0 took the least of a negated i32 row for another number (H100, H200).
    """
    return tl.where(a < b, a, b)
''',
    "floor_mod": '''@triton.jit
def floor_mod(a, b):
    """What is left of an integer division, with the sign of b: Triton's has that of a."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "floor_divide": '''@triton.jit
def floor_divide(a, b):
    """An integer division that rounds down: Triton's rounds towards zero."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), a // b - 1, a // b)
''',
    "for_atomic_max": '''@triton.jit
def for_atomic_max(x):
    """x as atomic_max compares it, by its bits: NaN the largest of all, zero without a sign."""
    return tl.where(x != x, float("nan"), x + 0.0)
''',
    "for_atomic_min": '''@triton.jit
def for_atomic_min(x):
    """x as atomic_min compares it, by its bits: NaN, with a sign, the smallest of all, zero without one."""
    smallest = tl.full(x.shape, -4194304, tl.int32).to(tl.float32, bitcast=True)
    return tl.where(x != x, smallest, x + 0.0)
''',
    "round_half_even": '''@triton.jit
def round_half_even(x):
    """The nearest whole number, the even one of two: as torch.round."""
    if INTERPRETED:  # it has no libdevice: of less than 2^22, adding 1.5 * 2^23 leaves no bits for a fraction
        return tl.where(tl.abs(x) < 4194304.0, (x + 12582912.0) - 12582912.0, x)
    return libdevice.rint(x)
''',
    "to_f8": '''@triton.jit
def to_f8(x, dtype: tl.constexpr, saturates: tl.constexpr):
    """x to be stored as an 8-bit float: beyond the largest number that number, as the GPU casts, or NaN or infinity."""
    if INTERPRETED:
        return x  # torch rounds what is stored
    if saturates:
        return x.to(dtype)
    if dtype == tl.float8e4nv:
        return tl.where(tl.abs(x) > 464.0, float("nan"), x).to(dtype)
    bits = x.to(dtype).to(tl.uint8, bitcast=True)
    infinity = (tl.where(x < 0, 252, 124)).to(tl.uint8)
    return tl.where(tl.abs(x) >= 61440.0, infinity, bits).to(dtype, bitcast=True)
''',
    "round_to_f8": '''@triton.jit
def round_to_f8(x, dtype: tl.constexpr, saturates: tl.constexpr):
    """x as an 8-bit float would hold it: the text has a cast here."""
    if INTERPRETED:  # which rounds to other numbers than a GPU
        mantissa = 3 if dtype == tl.float8e4nv else 2
        lowest = 121 if dtype == tl.float8e4nv else 113
        largest = 448.0 if dtype == tl.float8e4nv else 57344.0
        beyond = largest if saturates else float("nan") if dtype == tl.float8e4nv else float("inf")
        bits = tl.minimum(tl.abs(x), 2.0 * largest).to(tl.int32, bitcast=True)
        step = ((tl.maximum(bits >> 23, lowest) - mantissa) << 23).to(tl.float32, bitcast=True)
        y = ((tl.minimum(tl.abs(x), 2.0 * largest) / step + 12582912.0) - 12582912.0) * step
        y = tl.where(y > largest, beyond, y)
        return tl.where(x != x, x, tl.where(x < 0, -y, y))
    return to_f8(x, dtype, saturates).to(tl.float32)
''',
    "product": '''@triton.jit
def product(a, b):
    """What tl.reduce multiplies by."""
    return a * b
''',
    "log_add": '''@triton.jit
def log_add(a, b):
    """log(exp(a) + exp(b))"""
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(tl.abs(top) == float("inf"), top, top + log1p(tl.exp(low - top)))
''',
    "log_sums": '''@triton.jit
def log_sums(a, s, b, t):
    """exp(a) * s + exp(b) * t as such a pair, with the larger exponent: one exponential and no logarithm a step."""
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    share = tl.where(a == b, 1.0, tl.exp(-tl.abs(a - b)))  # infinities of one sign have no difference
    return top, tl.where(a < b, s * share + t, s + t * share)
''',
    "first_largest": '''@triton.jit
def first_largest(a, i, b, j):
    """The larger of two elements with its place: NaN before all, of equal ones the first."""
    own = (a > b) | ((a == b) & (i < j)) | ((a != a) & ((b == b) | (i < j)))
    return tl.where(own, a, b), tl.where(own, i, j)
''',
    "first_smallest": '''@triton.jit
def first_smallest(a, i, b, j):
    """The smaller of two elements with its place: NaN before all, of equal ones the first."""
    own = (a < b) | ((a == b) & (i < j)) | ((a != a) & ((b == b) | (i < j)))
    return tl.where(own, a, b), tl.where(own, i, j)
''',
    "latest_largest": '''@triton.jit
def latest_largest(a, i, b, j):
    """The larger of two elements with its place: NaN before all, of equal ones the latest."""
    own = (a > b) | ((a == b) & (i > j)) | ((a != a) & ((b == b) | (i > j)))
    return tl.where(own, a, b), tl.where(own, i, j)
''',
    "latest_smallest": '''@triton.jit
def latest_smallest(a, i, b, j):
    """The smaller of two elements with its place: NaN before all, of equal ones the latest."""
    own = (a < b) | ((a == b) & (i > j)) | ((a != a) & ((b == b) | (i > j)))
    return tl.where(own, a, b), tl.where(own, i, j)
''',
    "sort_key": '''@triton.jit
def sort_key(x):
    """A 32-bit integer in the order of a float: NaN above all, both zeros the same."""
    bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)
''',
    "sorted_float": '''@triton.jit
def sorted_float(key):
    """The float of a sort_key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
''',
    "first_of": '''@triton.jit
def first_of(packed, col, count: tl.constexpr, axis: tl.constexpr):
    """The `count` smallest of a row of different numbers, in order, in its first columns."""
    picked = packed
    for place in tl.static_range(count):
        least = tl.min(packed, axis=axis, keep_dims=True)
        picked = tl.where(col == place, least, picked)
        packed = tl.where(packed == least, 0x7FFFFFFFFFFFFFFF, packed)
    return picked
''',
    "round_to": '''@triton.jit
def round_to(x, dtype: tl.constexpr):
    """x as a 16-bit type would hold it: the text has a cast here."""
    if INTERPRETED and dtype == tl.bfloat16:  # the interpreter cuts bits off where a GPU rounds to nearest even
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        return bits.to(tl.float32, bitcast=True)
    return x.to(dtype).to(tl.float32)
''',
    "dot_bf16": '''@triton.jit
def dot_bf16(a, b, acc):
    """acc + a @ b."""
    if INTERPRETED:  # whose products of bf16 are wrong
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    return tl.dot(a, b, acc)
''',
}
"""Device functions that an expression may call; their text is copied into the kernel's file."""

HELPERS_OF: Mapping[str, tuple[str, ...]] = {"log_add": ("log1p",), "round_to_f8": ("to_f8",)}
"""Device functions that one of them calls."""

TRITON_DTYPES: Mapping[str, str] = {
    "f64": "tl.float64", "f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16",
    "f8e4m3": "tl.float8e4nv", "f8e5m2": "tl.float8e5",
    "i64": "tl.int64", "i32": "tl.int32", "i16": "tl.int16", "i8": "tl.int8", "u8": "tl.uint8", "bool": "tl.int1",
}  # fmt: skip

TORCH_DTYPES: Mapping[str, str] = {
    "f64": "torch.float64", "f32": "torch.float32", "bf16": "torch.bfloat16", "f16": "torch.float16",
    "f8e4m3": "torch.float8_e4m3fn", "f8e5m2": "torch.float8_e5m2",
    "i64": "torch.int64", "i32": "torch.int32", "i16": "torch.int16", "i8": "torch.int8", "u8": "torch.uint8",
    "bool": "torch.bool",
}  # fmt: skip
