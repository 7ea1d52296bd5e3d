"""Codes of 8-bit floats, e4m3 as OCP has it ("fn": no infinities, 448 the largest): made in registers, stored as bytes.

NVIDIA's conversion instruction is of sm_89 and later. Elsewhere, and in Triton's interpreter, the code is made by
integer operations: the same rounding to nearest even, the same saturation.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.shared.pairs import INTERPRETED

LARGEST = 448.0
"""Largest number of e4m3."""
SMALLEST_AMAX = 1e-12
"""Rows whose largest number is below it are scaled as if it were this, unless told otherwise: no division by zero."""


@triton.jit
def code_by_integers(x):
    """uint8 code of f32 x; what is beyond 448 saturates, NaN stays."""
    bits = x.to(tl.int32, bitcast=True)
    size = tl.minimum(bits & 0x7FFFFFFF, 0x43E00000)  # 448.0
    # Adding 2^14 puts the unit of f32, 2^-9, where that of e4m3's subnormals is.
    small = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - 960  # exponents: 127 of f32, 7 here; 120 * 8
    code = tl.where(size < 0x3C800000, small, normal)  # 2^-6
    code = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def code_of(x):
    """uint8 code of f32 x in e4m3, by the instruction where there is one."""
    if target_info.is_cuda() and not INTERPRETED and target_info.cuda_capability_geq(8, 9):
        code = x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        code = code_by_integers(x)
    return code


@triton.jit
def size_of(x):
    """|x| of f32 x as an int32 that sorts as it does, NaN above infinity: a maximum of these keeps NaN as torch's."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def scale_of(size, least):
    """The f32 by which a group's largest number, as `size_of` gives it, or `least` where that is more, is 448."""
    largest = size.to(tl.float32, bitcast=True)
    return tl.where(largest < least, least, largest) / 448.0
