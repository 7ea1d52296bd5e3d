"""User atlas: what a user measured on cards of his own, in a folder of his own, before what is shipped.

A file that came, went or was replaced counts from the next look on, in a running server as well. One that is damaged,
too large or of another device is refused with its reason, and the shipped atlas stands in for it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.atlas.atlas import SUFFIX, Atlas, AtlasError, file_name, read
from profiler.hardware import DEVICES, Device, find_device

VARIABLE = "TRITONWORTHY_ATLAS_DIR"
LOOK_EVERY_S = 2.0
"""Between two looks at a file within one question; `look_again` begins the next."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class UserAtlas:
    """One file of the folder. atlas: None where it is refused, for a reason that begins with the file's name.

    Compared by identity: a file that was replaced is another.
    """

    path: Path
    atlas: Atlas | None
    refused: str = ""


@dataclass(slots=True)
class _Look:
    """What a path held when it was looked at last. state: None where there was nothing."""

    looked_s: float
    state: tuple[int, ...] | None
    held: UserAtlas | None


@dataclass(slots=True)
class _Folder:
    """The folder of this process, once it is known; path None for none at all."""

    known: bool = False
    path: Path | None = None


_folder = _Folder()
_looks: dict[Path, _Look] = {}


def folder_of(environment: Mapping[str, str]) -> Path:
    """The user's folder by the settings `atlas_dir` and `data_dir`, without reading the others."""
    own = environment.get(VARIABLE)
    return Path(own) if own else Path(environment.get("TRITONWORTHY_DATA_DIR") or ".data") / "atlas"


def use_folder(folder: Path | None) -> None:
    """Of this process from now on, in place of the environment's: what a server tells its children. None: no atlases
    of the user's, as where shipped ones are compared with measurements."""
    _folder.known, _folder.path = True, folder


@contextmanager
def using_folder(folder: Path | None) -> Iterator[None]:
    """The same for as long as the block lasts."""
    before = _folder.known, _folder.path
    use_folder(folder)
    try:
        yield
    finally:
        _folder.known, _folder.path = before


def folder() -> Path | None:
    """Where this process looks."""
    return _folder.path if _folder.known else folder_of(os.environ)


def atlas_of(device: Device) -> UserAtlas | None:
    """The user's own of a device; None where there is no such file."""
    place = folder()
    if place is None:
        return None
    path = place / file_name(device)
    look, now = _looks.get(path), time.monotonic()
    if look is not None and now < look.looked_s + LOOK_EVERY_S:
        return look.held
    state = _state(path)
    if look is not None and look.state == state:
        look.looked_s = now
        return look.held
    held = None if state is None else _load(path, device)
    if held is not None and held.refused:
        log.warning("the atlas in %s is refused: %s; another is used", place, held.refused)
    _looks[path] = _Look(now, state, held)
    return held


def look_again() -> None:
    """Look at each file anew when it is asked for next: a question is answered by what is there when it comes."""
    for look in _looks.values():
        look.looked_s = -LOOK_EVERY_S


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes with a file's content; None where there is none."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        return (fault.errno or 0,)
    return state.st_mtime_ns, state.st_size, state.st_ino


def _load(path: Path, device: Device) -> UserAtlas:
    try:
        return UserAtlas(path, check(path, device))
    except AtlasError as fault:
        return UserAtlas(path, None, str(fault))


def check(path: Path, device: Device | None = None) -> Atlas:
    """The file's atlas. AtlasError where it is none, or of another device: device, where that is given; else one of the
    table."""
    atlas = read(path)
    known = find_device(atlas.device)
    if known is None:
        raise AtlasError(f"{path.name} is of {atlas.device}, which is not in the table of devices")
    if device is not None and known != device:
        raise AtlasError(f"{path.name} is of {atlas.device}, not of the {device.name} that its name says")
    return atlas


def all_in(place: Path) -> list[UserAtlas]:
    """Every file of a folder that ends as an atlas does; those that are named as no device are refused."""
    devices = {file_name(device): device for device in DEVICES}
    held = []
    for path in sorted(place.glob(f"*{SUFFIX}")):
        device = devices.get(path.name)
        if device is None:
            held.append(UserAtlas(path, None, f"{path.name} is named as no device of the table"))
        else:
            held.append(_load(path, device))
    return held


def state_of(place: Path) -> str:
    """Changes where one of the folder's atlases does: what was answered by them before is another question then."""
    return " ".join(f"{path.name} {_state(path)}" for path in sorted(place.glob(f"*{SUFFIX}")))
