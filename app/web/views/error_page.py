"""What an error's page offers: what to do now, and where to go on. Pure functions of status and code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WayOn:
    """A sentence that says what to do, and links: (words, address), the likeliest first."""

    advice: str
    links: tuple[tuple[str, str], ...]


START = ("Start page", "/")
HISTORY = ("History", "/history")
UPLOAD = ("Upload another", "/#upload")
REGION = ("Write the operation", "/#region")
DEVICE = ("Device", "/device")
SIGN_IN = ("Sign in", "/sign-in")

BY_CODE: Mapping[str, WayOn] = {
    "queue-full": WayOn("Wait a minute, then send it again.", (HISTORY, START)),
    "too-many-requests": WayOn("Wait a minute, then reload this page.", (START,)),
    "upload-too-large": WayOn(
        "Record fewer steps, or send it as .json.gz.", (UPLOAD, ("How to record one", "/#upload"))
    ),
    "trace-too-large": WayOn("Record fewer steps, with a schedule of one active step.", (UPLOAD, HISTORY)),
    "region-too-large": WayOn("Send the part that takes the time, not the whole model.", (REGION,)),
    "quota-full": WayOn("Delete traces that are not needed any more.", (HISTORY,)),
    "disk-full": WayOn("Delete traces that are not needed any more.", (HISTORY,)),
    "device-unknown": WayOn("Choose one of the GPUs that the estimate knows.", (DEVICE, START)),
}
"""Where the code says more than the status."""

BY_STATUS: Mapping[int, WayOn] = {
    400: WayOn("Begin again from the form.", (START,)),
    401: WayOn("This server asks for its token.", (SIGN_IN,)),
    403: WayOn("Open the page from this site.", (START,)),
    404: WayOn(
        "Look for it in the history; what a page's Delete removed in the last hour can be brought back there.",
        (HISTORY, START),
    ),
    405: WayOn("Begin again from the form.", (START,)),
    408: WayOn("Send it again.", (START,)),
    409: WayOn("Wait until it has been read.", (HISTORY,)),
    413: WayOn("Send less.", (START,)),
    415: WayOn("Send a file of torch.profiler, nsys or rocprofv3.", (UPLOAD,)),
    422: WayOn("Go back, mend it and send it again.", (START, HISTORY)),
    429: WayOn("Wait a minute, then try again.", (HISTORY, START)),
    500: WayOn("Try again. If it comes back, the server's log has the reason.", (HISTORY, START)),
    503: WayOn("Reload this page in a moment.", (START, DEVICE)),
    507: WayOn("Delete traces that are not needed any more.", (HISTORY,)),
}

OTHERWISE = WayOn("Begin again.", (START, HISTORY))


def way_on(status: int, code: str) -> WayOn:
    """By the code where it says more, else by the status."""
    return BY_CODE.get(code) or BY_STATUS.get(status, OTHERWISE)
