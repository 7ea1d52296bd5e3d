"""Conditions that several entries share: sizes, layouts, dtypes, direction. Torch-free."""

from __future__ import annotations

from collections.abc import Callable

from kernels.libraries.model import COMPILE, Condition, Entry, Facts

HALF = ("f16", "bf16")
FLOATS = ("f64", "f32", "bf16", "f16")
NO_DOUBLE = ("f32", "bf16", "f16")

FLOATING = Condition("floating-point operands", lambda f: f.dtype in FLOATS)
TRAINING = Condition("training (it saves memory in forward and backward together)", lambda f: f.requires_grad or None)


def at_most(role: str, limit: int, text: str, dim: int = -1) -> Condition:
    """One size of a tensor, up to a limit."""
    return Condition(text, lambda f: None if (n := f.size(role, dim)) is None else n <= limit)


def at_least(role: str, limit: int, text: str, dim: int = -1) -> Condition:
    """One size of a tensor, from a limit on."""
    return Condition(text, lambda f: None if (n := f.size(role, dim)) is None else n >= limit)


def multiple(text: str, number: int, *places: tuple[str, int]) -> Condition:
    """Sizes that are multiples."""

    def test(f: Facts) -> bool | None:
        sizes = [f.size(role, dim) for role, dim in places]
        return None if None in sizes else all(n % number == 0 for n in sizes if n is not None)

    return Condition(text, test)


def constant(role: str, text: str, test: Callable[[float], bool]) -> Condition:
    """A number among the match's roles."""

    def judged(f: Facts) -> bool | None:
        value = f.roles.get(role)
        return test(value) if isinstance(value, (int, float)) else None

    return Condition(text, judged)


def dtype_of(role: str, *dtypes: str) -> Condition:
    """The dtype of another operand than the main one; where it is not there, nothing is asked."""
    return Condition(f"{role} of {' or '.join(dtypes)}", lambda f: f.dtypes.get(role, dtypes[0]) in dtypes)


def one_dtype(*roles: str) -> Condition:
    """Operands of one dtype."""
    return Condition(
        f"{', '.join(roles)} of one dtype", lambda f: len({f.dtypes[r] for r in roles if r in f.dtypes}) < 2
    )


def rank(role: str, number: int, text: str) -> Condition:
    """How many dimensions."""
    return Condition(text, lambda f: None if role not in f.sizes else len(f.sizes[role]) == number)


def without(role: str, text: str) -> Condition:
    """A role that must be empty."""
    return Condition(text, lambda f: f.roles.get(role) is None)


def one_of(role: str, values: tuple[str | None, ...], text: str) -> Condition:
    """A role's value, None where it has none."""
    return Condition(text, lambda f: f.roles.get(role) in values)


def _last(f: Facts) -> bool | None:
    size, dim = f.sizes.get("x"), f.roles.get("dim")
    return None if not size or not isinstance(dim, int) else dim % len(size) == len(size) - 1


def liger_row(role: str) -> Condition:
    """liger_kernel's ops/utils.py, calculate_settings: a row is one block, and a longer one raises."""
    return at_most(role, 65536, "rows of up to 65536 numbers")


LAST_DIM = Condition("over the last dimension (else torch's spatial kernel runs)", _last)
OTHER_DIM = Condition("over another dimension than the last", lambda f: None if (x := _last(f)) is None else not x)
CHANNELS_LAST = Condition(
    "channels_last, the layout of cuDNN's 16-bit kernels (else it transposes)",
    lambda f: True if _channels_last(f.strides.get("x", ())) else None,
)


def _channels_last(strides: tuple[int, ...]) -> bool:
    return len(strides) > 3 and strides[1] == 1


def compiled(
    kinds: frozenset[str], *rows: int, conditions: tuple[Condition, ...] = (), dtypes: tuple[str, ...] = (),
    arch: tuple[int, int] = (7, 0), call: str = "torch.compile(f)", note: str = "", source: str, gives_up: str = "",
) -> Entry:  # fmt: skip
    """When torch.compile covers an operation: as any entry, with the least GPU that Triton compiles for."""
    return Entry(
        COMPILE, "torch", kinds, call, conditions, rows, arch, dtypes, note=note, source=source, since="2.0",
        gives_up=gives_up or "the first call compiles; other sizes may compile again",
    )  # fmt: skip


FP8_STORED = Condition(
    "compute capability 8.9 or newer where it is stored in fp8: Triton has no e4m3 below",
    lambda f: True if f.roles.get("to") in ("i8", "u8") else None if f.capability is None else f.capability >= (8, 9),
)
