"""tritonworthy calibrate: measure this host's GPU, and make the atlas that predictions for it rest on from then on.

Exit status: 0 measured and written, or what was to be looked at is an atlas; 2 nothing could be measured, fitted or
written, or a file is refused; 130 interrupted: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.check.safe import visible
from app.cli.options import given_path, minutes

if TYPE_CHECKING:
    from app.atlas.atlas import Atlas
    from app.atlas.shipped import Basis
    from kernels.calibrate.points import Conditions, Point
    from kernels.calibrate.run import Progress
    from kernels.host import Host
    from profiler.hardware import Device

OK, FAILED = 0, 2
MINUTES = 6.0
WIDTH = 110
"""Of lines of progress."""


class RefusedError(Exception):
    """Nothing can be measured, fitted or written; the message says why and what to do."""


def add_calibrate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `calibrate` into the command line."""
    calibrate = commands.add_parser(
        "calibrate",
        help="measure this host's GPU: the atlas that predictions for it rest on",
        description="Measures programs of many families on this host's first GPU, fits the device's atlas and writes it"
        " to your atlases (TRITONWORTHY_ATLAS_DIR, else the data folder's atlas), where it counts before the shipped"
        " one, in a running server too. Interrupted, the same command goes on where it was stopped.",
    )
    calibrate.add_argument(
        "--minutes",
        type=minutes,
        default=MINUTES,
        metavar="MINUTES",
        help=f"time to measure in; {MINUTES:g} unless said",
    )
    calibrate.add_argument("--out", type=given_path, metavar="FILE", help="write the atlas here, instead of to yours")
    calibrate.add_argument(
        "--fresh", action="store_true", help="forget what an interrupted run measured, and begin anew"
    )
    looks = calibrate.add_mutually_exclusive_group()
    looks.add_argument(
        "--check", type=given_path, metavar="FILE", help="measure nothing: say what this atlas is and how far off it is"
    )
    looks.add_argument(
        "--show", action="store_true", help="measure nothing: say which atlas each device of the table is priced by"
    )
    calibrate.set_defaults(run=_calibrate)


def _calibrate(arguments: argparse.Namespace) -> int:
    if arguments.check is not None:
        return _check(arguments.check)
    if arguments.show:
        return _show()
    try:
        return _measure(arguments)
    except RefusedError as refused:
        print(refused, file=sys.stderr)
        return FAILED


# -------------------------------------------------------------------------------------------------------- measuring


def _measure(arguments: argparse.Namespace) -> int:
    from app.atlas import user_atlas
    from app.atlas.atlas import file_name

    host, device = _host()
    own = user_atlas.folder_of(os.environ).absolute() / file_name(device)
    path: Path = arguments.out or own
    parts = path.with_name(f"{path.name}.parts")
    _prepare(path, parts, fresh=arguments.fresh)
    try:
        conditions, points = _points(parts, host, device, arguments.minutes)
        atlas = _fit(conditions, points, device)
        _write(path, atlas, device)
    except KeyboardInterrupt:
        _tell(f"\nstopped: what was measured is in {parts}, and the same command goes on with it")
        raise
    shutil.rmtree(parts, ignore_errors=True)
    for line in _what_it_means(path, own, atlas, device):
        _tell(line)
    return OK


def _host() -> tuple[Host, Device]:
    """This host, and its GPU in the table of devices."""
    from kernels.host import probe_host
    from profiler.hardware import DEVICES, find_device

    host = probe_host()
    if host.gpu is None:
        why = f" ({host.note})" if host.note else ""
        raise RefusedError(f"no GPU on this host{why}: there is nothing to measure. Run it on the host of the card.")
    device = find_device(host.gpu)
    if device is None:
        known = ", ".join(d.name for d in DEVICES)
        raise RefusedError(
            f"{host.gpu} is not in the table of devices, so that its floors are not known. Add its row to"
            f" profiler/hardware.py (docs/contributing.md, a kind of GPU), then measure. The table has {known}."
        )
    return host, device


def _prepare(path: Path, parts: Path, *, fresh: bool) -> None:
    """Places to write to, tried before minutes are spent."""
    if path.is_dir():
        raise RefusedError(f"{path} is a folder; --out takes the atlas's file")
    try:
        if fresh:
            shutil.rmtree(parts, ignore_errors=True)
        for folder in (*reversed(parts.parents), parts):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)  # the data folder may be among them
        trial = path.with_name(f".{path.name}.{os.getpid()}")
        trial.touch()
        trial.unlink()
    except OSError as fault:
        raise RefusedError(f"{path} cannot be written: {fault.strerror}") from None


def _points(parts: Path, host: Host, device: Device, limit: float) -> tuple[Conditions, Sequence[Point]]:
    from kernels.calibrate.run import Listener, measure, plans, workers_here
    from kernels.calibrate.run_state import CalibrationError

    each = workers_here(device.memory_bytes)
    wanted = plans({"eager": each, "compile": each})
    _tell(
        f"measuring {host.gpu} for {limit:g} minutes with {len(wanted)} processes; Ctrl-C stops it,"
        " and the same command goes on"
    )
    try:
        return measure(parts, host, limit, wanted, Listener(_tell_progress, _tell))
    except CalibrationError as refused:
        anew = " (--fresh)" if "begin anew" in str(refused) else ""
        raise RefusedError(f"{refused}{anew}") from None


def _tell_progress(progress: Progress) -> None:
    for line in progress_lines(progress.points, progress.seconds_left, progress.others):
        _tell(line)


def progress_lines(points: Mapping[str, int], seconds_left: float, others: int | None) -> list[str]:
    """How many points, how long still, who else is on the GPU; then the points of each family."""
    total = f"{sum(points.values()):,} points, {seconds_left / 60:.1f} minutes left"
    if others:
        total += f", {others} other process{'es' if others > 1 else ''} on the GPU"
    families = ", ".join(f"{family} {count}" for family, count in sorted(points.items()))
    return [total, *textwrap.wrap(families, WIDTH, initial_indent="  ", subsequent_indent="  ")]


def _fit(conditions: Conditions, points: Sequence[Point], device: Device) -> Atlas:
    from app.atlas.fit import LEAST_POINTS, fit_atlas

    _tell(f"fitting {len(points):,} points: a minute or two")
    began = time.monotonic()
    atlas = fit_atlas(conditions, points, device)
    if not atlas.groups:
        raise RefusedError(
            f"{len(points):,} points are too few: no group has {LEAST_POINTS}. The same command with more --minutes"
            " goes on from them."
        )
    _tell(f"fitted in {time.monotonic() - began:.0f} s")
    return atlas


def _write(path: Path, atlas: Atlas, device: Device) -> None:
    """The file, and its table on stdout. It is read before it takes the place of another."""
    from app.atlas import user_atlas
    from app.atlas.atlas import AtlasError, write
    from app.atlas.table import as_table

    trial = path.with_name(f"{path.name}.parts") / path.name
    try:
        write(trial, atlas)
        table = as_table(user_atlas.check(trial, device), trial.stat().st_size)
        trial.replace(path)
    except AtlasError as fault:
        raise RefusedError(f"what was fitted is no atlas that can be read: {fault}") from None
    print(table)
    sys.stdout.flush()


def _what_it_means(path: Path, own: Path, atlas: Atlas, device: Device) -> list[str]:
    """What happens with the file from now on."""
    from app.atlas.shipped import shipped_atlas

    lines = [f"written: {path}"]
    if path.absolute() == own.absolute():
        lines.append(
            f"predictions for {device.name} rest on it from now on, in a running server too; remove it to undo that"
        )
    else:
        lines.append(f"it is used once it is at {own}, or TRITONWORTHY_ATLAS_DIR names a folder with it as {own.name}")
    shipped = shipped_atlas(device)
    missing = sorted(set(shipped.groups) - set(atlas.groups)) if shipped is not None else []
    if missing:
        lines.append(
            f"not in it, as too few points were measured: {', '.join(missing)}. The shipped atlas of this device has"
            " them; other rules price them now. More --minutes bring them."
        )
    return lines


# ---------------------------------------------------------------------------------------------------------- looking


def _check(path: Path) -> int:
    from app.atlas import user_atlas
    from app.atlas.atlas import AtlasError
    from app.atlas.table import as_table

    try:
        print(as_table(user_atlas.check(path), path.stat().st_size))
    except AtlasError as refused:
        print(visible(refused), file=sys.stderr)
        return FAILED
    return OK


def _show() -> int:
    """A line for each device of the table, then each file of the user's that is refused."""
    from app.atlas import user_atlas
    from app.atlas.atlas import file_name
    from app.atlas.shipped import basis_on
    from profiler.hardware import DEVICES

    folder = user_atlas.folder_of(os.environ).absolute()
    held = user_atlas.all_in(folder)
    by_name = {users.path.name: users for users in held}
    for device in DEVICES:
        print(f"{device.name}: {_basis_text(basis_on(device, by_name.get(file_name(device))))}")
    print(f"your atlases: {folder}")
    sys.stdout.flush()
    refused = [users.refused for users in held if users.refused]
    for reason in refused:
        print(f"refused: {visible(reason)}", file=sys.stderr)
    return FAILED if refused else OK


def _basis_text(basis: Basis | None) -> str:
    if basis is None:
        return "no atlas"
    atlas = basis.atlas
    whose = "yours" if basis.users else "shipped" if basis.own else f"that of {atlas.device}, scaled"
    others = f", measured while {atlas.others} others were on the GPU" if basis.own and atlas.others else ""
    return f"{whose}, {atlas.date}, {atlas.points:,} points{others}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
