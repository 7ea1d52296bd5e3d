"""What a validation says of the user's own kernel. The command line alone has it: a server takes no code."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from app.objects.common import Interval
from app.objects.record import NamedValidation

Verdict = Literal["keep", "delete", "wrong", "cheats", "crashed", "hung", "unmeasured"]


class KernelVerdict(TypedDict):
    """candidate: its name among the candidates. against: the best that one line of code has, which it is held against;
    ratio: its time over that one's, speedup the inverse. Null where they were not timed."""

    candidate: str
    verdict: Verdict
    because: str
    against: str | None
    ratio: Interval | None
    speedup: Interval | None


class ValidationWithKernel(NamedValidation):
    """What `validate --kernel --json` prints."""

    kernel_verdict: KernelVerdict
