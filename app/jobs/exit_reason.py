"""Why a child process ended, and what to tell the user about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.objects.common import Error


class ExitReason(StrEnum):
    """One word for every way that a child process can end."""

    OK = "ok"
    ERROR = "error"  # it said what was wrong
    TIMEOUT = "timeout"
    FAULT = "fault"  # a signal that it did not survive, or an exit without a word
    OUT_OF_MEMORY = "out-of-memory"
    BAD_OUTPUT = "bad-output"
    CANCELLED = "cancelled"
    LOST = "worker-lost"  # the machine that it ran on is gone, and with it how it ended
    NO_DEVICE = "no-device"  # none of the wanted kind, or none free in time


@dataclass(frozen=True, slots=True)
class Advice:
    """What the user reads: what happened, what to do."""

    message: str
    remedy: str


TEXTS: dict[ExitReason, Advice] = {
    ExitReason.OK: Advice("Done.", ""),
    ExitReason.ERROR: Advice("The job could not be done.", "See the message."),
    ExitReason.TIMEOUT: Advice(
        "The job took longer than it may, and was stopped.",
        "Try a smaller input, or raise the time limit in the server's settings.",
    ),
    ExitReason.FAULT: Advice(
        "The process that did the job crashed. Nothing else is affected.",
        "Start it again; if it crashes again, the job's log on the server tells where.",
    ),
    ExitReason.OUT_OF_MEMORY: Advice(
        "The job needed more memory than it may use, and was stopped.",
        "Try a smaller input, or raise the memory limit in the server's settings.",
    ),
    ExitReason.BAD_OUTPUT: Advice(
        "The process that did the job gave an answer that makes no sense, and it was thrown away.",
        "Start it again; if it happens again, please report it with the job's log.",
    ),
    ExitReason.CANCELLED: Advice("The job was cancelled.", "Start it again when you want to."),
    ExitReason.LOST: Advice("The machine that did the job is gone.", "The job is done again on another one."),
    ExitReason.NO_DEVICE: Advice("There was no GPU for the job.", "Ask for a kind that the fleet has, or try later."),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: where it is ok its `value`, as it said it and not yet checked; else `error`.

    stuck_pid is the process that not even SIGKILL has ended yet (a hung driver); None in all other cases. again: nobody
    here ended it, and it said nothing of its own: the job is worth another attempt.
    """

    reason: ExitReason
    value: Any = None
    error: Error | None = None
    stuck_pid: int | None = None
    again: bool = False


def failure(reason: ExitReason, detail: str = "", *, stuck_pid: int | None = None, again: bool = False) -> Ended:
    """An end with the user text of its reason."""
    text = TEXTS[reason]
    message = f"{text.message} {detail}".strip()
    return Ended(reason, None, {"code": reason.value, "message": message, "remedy": text.remedy}, stuck_pid, again)
