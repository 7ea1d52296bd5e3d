"""Python environments as the command line names them: a path, or the torch that one of yours has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from app.cli.inputs import InputError
from profiler.oracle.environment import Environment, EnvironmentUnusableError, inspect_environment

VARIABLE = "TRITONWORTHY_ENVIRONMENTS"
"""Your environments, as PATH names folders: interpreters or virtual environments, among which `torch==2.14.*` picks."""


def environment_of(wanted: str, variables: Mapping[str, str] = os.environ) -> Environment:
    """An interpreter, a virtual environment's folder, or the one of the newest torch that a requirement such as
    `torch==2.14.*` takes. Raises InputError."""
    requirement = _requirement(wanted)
    try:
        if requirement is None or Path(wanted).exists():
            return inspect_environment(Path(wanted))
        yours = [inspect_environment(Path(p)) for p in variables.get(VARIABLE, "").split(os.pathsep) if p]
    except EnvironmentUnusableError as error:
        raise InputError(str(error)) from None
    taken = [each for each in yours if requirement.specifier.contains(each.torch, prereleases=True)]
    if not taken:
        known = ", ".join(f"{each.interpreter} has {each.torch}" for each in yours) or "it names none"
        raise InputError(f"no environment of {VARIABLE} has {wanted}: {known}")
    return max(taken, key=lambda each: Version(each.torch))


def _requirement(wanted: str) -> Requirement | None:
    try:
        requirement = Requirement(wanted)
    except InvalidRequirement:
        return None
    return requirement if requirement.name == "torch" else None
