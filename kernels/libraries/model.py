"""What libraries cover, as data: entries with conditions, and the Cover that a region gets. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """What conditions look at: one match in one region on one host.

    dtype: of the match's main operand. sizes: role -> shape of the tensor that plays it. features: Host.features.
    capability: of the host's GPU, None where there is none or it is not CUDA.
    """

    kind: str
    by_hand: bool
    dtype: str
    roles: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    requires_grad: bool
    capability: tuple[int, int] | None
    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of an entry. test gives None where it cannot be known here."""

    text: str
    test: Callable[[Facts], bool | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One library call and when it covers a pattern.

    call is shown to the user with the region's own names: {x}, {weight}, ... are roles. adapter names the rewrite in
    `kernels.libraries.adapters` that lets it be measured; "" where there is none. feature: of the running torch.
    """

    candidate: str  # "library:torch.nn.functional.rms_norm"
    package: str  # import name
    kinds: frozenset[str]  # kinds of Match that it covers
    call: str
    conditions: tuple[Condition, ...] = ()
    adapter: str = ""
    feature: str = ""
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Cover:
    """What one library call is to one region.

    covers: no condition fails. conditions: (text, holds); None is unknown. already: the region is this call as it
    stands. adapter: the rewrite by which it is measured, None where there is none here. whole: nothing else computes.
    """

    candidate: str
    package: str
    call: str
    covers: bool
    conditions: tuple[tuple[str, bool | None], ...]
    installed: bool
    already: bool
    kind: str
    note: str = ""
    adapter: str | None = None
    operations: frozenset[str] = field(default=frozenset())
    whole: bool = False
    source: str = ""


def capability_at_least(major: int, minor: int = 0) -> Condition:
    """The GPU's compute capability."""
    return Condition(
        f"NVIDIA GPU of compute capability {major}.{minor} or newer",
        lambda f: None if f.capability is None else f.capability >= (major, minor),
    )


def dtype_among(*dtypes: str) -> Condition:
    """The dtype of the main operand."""
    return Condition(f"dtype {' or '.join(dtypes)}", lambda f: f.dtype in dtypes)


FORWARD_ONLY = Condition("forward only", lambda f: not f.requires_grad)
