"""tritonworthy fleet: what the fleet is made of, and what a host has to declare to be part of it.

Exit status: 0 said; 1 no host takes work; 2 the cluster cannot be joined.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from app.cli.options import count
from app.jobs.ray import model
from app.objects.device import FleetGpu

OK, NOTHING, NO_CLUSTER = 0, 1, 2
LOOK_S = 30.0
"""What hosts have is asked of each; one that does not answer by then is listed as it declares itself."""


def add_fleet(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `fleet` into the command line."""
    fleet = commands.add_parser(
        "fleet", help="many hosts: what is there, what is free; what a host declares", description="See docs/fleet.md."
    )
    parts = fleet.add_subparsers(required=True, metavar="WHAT")
    status = parts.add_parser(
        "status",
        help="kinds of GPU, free, busy and sick",
        description="Joins the Ray cluster that TRITONWORTHY_RAY_ADDRESS and TRITONWORTHY_RAY_TOKEN_FILE name.",
    )
    status.add_argument("--json", action="store_true", help="print the API's object")
    status.set_defaults(run=_status)
    resources = parts.add_parser(
        "resources",
        help="what `ray start --resources` is told on a host",
        description='Prints JSON: ray start --resources="$(tritonworthy fleet resources --accelerator H200)" ...',
    )
    what = resources.add_mutually_exclusive_group(required=True)
    what.add_argument("--accelerator", metavar="NAME", help="the host's GPUs, such as H200 or AMD-Instinct-MI300X-OAM")
    what.add_argument(
        "--read-slots", metavar="N", type=count(1, 10_000), help="a host without GPUs: traces that it reads at once"
    )
    resources.set_defaults(run=_resources)


def _resources(arguments: argparse.Namespace) -> int:
    print(json.dumps(model.resources(arguments.accelerator, arguments.read_slots or 0)))
    return OK


def _status(arguments: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from app.jobs.ray.join import join
    from app.settings import Settings, explain

    try:
        settings = Settings(runner="ray")
        assert settings.ray_token_file is not None
        fleet = join(settings.ray_address, settings.ray_token_file, 1, 1.0)
    except ValidationError as error:
        print(explain(error), file=sys.stderr)
        return NO_CLUSTER
    except model.FleetError as error:
        print(f"the fleet cannot be joined: {error}", file=sys.stderr)
        return NO_CLUSTER
    try:
        deadline = time.monotonic() + LOOK_S
        while not all(node.facts for node in fleet.nodes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        kinds = fleet.kinds()
        rows = [model.gpu_type_json(kind) for kind in kinds]
        read_slots = model.read_slots(fleet.nodes())
    finally:
        fleet.close()
    body = {"kinds": rows, "read_slots": read_slots}
    print(json.dumps(body, indent=2) if arguments.json else status_text(rows, read_slots))
    return OK if any(kind.slots for kind in kinds) else NOTHING


def status_text(kinds: Sequence[FleetGpu], read_slots: int) -> str:
    """A table for people: one line a kind, and one for every host that takes no work."""
    lines = [f"{'kind':<26}{'hosts':>6}{'GPUs':>6}{'slots':>6}{'busy':>6}{'free':>6}  versions"]
    for kind in kinds:
        versions = ", ".join(
            f"{name} {'/'.join(kind['versions'][name])}"
            for name in ("tritonworthy", "torch", "triton")
            if kind["versions"].get(name)
        )
        numbers = (kind["hosts"], kind["gpus"], kind["slots"], kind["busy"], kind["free"])
        counts = "".join(f"{number:>6}" for number in numbers)
        lines.append(f"{kind['device']:<26}{counts}  {versions}")
        lines += [f"  sick: {why}" for why in kind["sick"]]
    lines.append(f"{read_slots} traces may be read at once on hosts without GPUs" if read_slots else
                 "no host reads traces: each server reads its own")  # fmt: skip
    return "\n".join(lines)
