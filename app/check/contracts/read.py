"""Contracts as TOML or JSON gives them; every mistake is an error that names its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from app.check.config_error import LEVELS, MAX_TEXT, ConfigError, check_known, join, show
from app.check.contracts.model import Contract
from profiler.hardware import find_device
from profiler.oracle.model import MODES

MAX_CONTRACTS = 50
"""Each is a question to Inductor, of some seconds at worst."""
MAX_REGION_CHARS = 64 * 1024
MOST = 10_000
ABOUT = ("region", "module", "pattern")
LIMITS = ("max_kernels", "max_bytes_over_minimum", "no_extern", "no_graph_break", "recompiles")
_KEYS = tuple(f.name for f in fields(Contract))

NO_MODULE = (
    "a server runs nobody's code: `tritonworthy check` on a host of your own records modules; take the contract out of"
    " what is sent"
)
NO_FILE = "a server has no such file: give the region's text"


def read_contracts(tables: object, *, own_files: bool) -> tuple[Contract, ...]:
    """The tables `[[contracts]]`. own_files: as by the command line, files are read and modules run.

    Raises ConfigError.
    """
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ConfigError("contracts", f"[[contracts]] is a list of tables, not {show(tables)}")
    if len(tables) > MAX_CONTRACTS:
        raise ConfigError("contracts", f"at most {MAX_CONTRACTS} contracts, please")
    contracts = [_contract(f"contracts.{number}", table, own_files) for number, table in enumerate(tables, 1)]
    names = [contract.name for contract in contracts]
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            raise ConfigError(f"contracts.{number}.name", f"there is a contract called {show(name)} already")
    return tuple(contracts)


def _contract(place: str, table: Mapping[str, Any], own_files: bool) -> Contract:
    check_known(place, table, _KEYS)
    if "name" not in table:
        raise ConfigError(place, "a contract needs name")
    given = [key for key in ABOUT if key in table]
    if len(given) != 1:
        raise ConfigError(place, f"exactly one of region, module and pattern is wanted, not {' and '.join(given) or 0}")
    for key, value in table.items():
        if problem := CHECKS[key](value):
            raise ConfigError(join(place, key), f"{problem} is wanted, not {show(value)}")
    contract = Contract(**table)
    if not any(getattr(contract, key) not in (None, False) for key in LIMITS):
        raise ConfigError(place, f"a contract needs a limit: {', '.join(LIMITS)}")
    if contract.module and not own_files:
        raise ConfigError(join(place, "module"), NO_MODULE)
    if contract.region and "\n" not in contract.region and not own_files:
        raise ConfigError(join(place, "region"), NO_FILE)
    if contract.module and contract.recompiles is not None:
        raise ConfigError(join(place, "recompiles"), "a module is recorded at one size: recompiles goes with region")
    return contract


def _text(most: int) -> Callable[[object], str]:
    def problem(value: object) -> str:
        return "" if isinstance(value, str) and 0 < len(value) <= most else f"a text of 1 to {most} characters"

    return problem


def _count(least: int) -> Callable[[object], str]:
    def problem(value: object) -> str:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return "" if whole and least <= value <= MOST else f"a whole number, {least} to {MOST}"  # type: ignore[operator]

    return problem


def _one_of(*values: object) -> Callable[[object], str]:
    def problem(value: object) -> str:
        return "" if any(value is v or (isinstance(v, str) and value == v) for v in values) else names

    names = "true or false" if True in values else f"one of {', '.join(map(str, values))}"
    return problem


def _ratio(value: object) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if number and 1 <= value <= MOST else "a ratio of 1 or more, such as 1.2"  # type: ignore[operator]


def _device(value: object) -> str:
    known = isinstance(value, str) and find_device(value) is not None
    return "" if known else "a device of the table, such as H200,"


def _specifier(value: object) -> str:
    try:
        return "" if isinstance(value, str) and value and SpecifierSet(value) else _SPECIFIER
    except InvalidSpecifier:
        return _SPECIFIER


_SPECIFIER = 'a version specifier, such as ">=2.13,<2.14",'

CHECKS: Mapping[str, Callable[[object], str]] = {
    "name": _text(MAX_TEXT),
    "level": _one_of(*LEVELS),
    "region": _text(MAX_REGION_CHARS),
    "module": _text(MAX_TEXT),
    "pattern": _text(MAX_TEXT),
    "max_kernels": _count(1),
    "max_bytes_over_minimum": _ratio,
    "no_extern": _one_of(True, False),
    "no_graph_break": _one_of(True, False),
    "recompiles": _count(0),
    "training": _one_of(True, False),
    "mode": _one_of(*MODES),
    "device": _device,
    "torch": _specifier,
}
"""Key -> what is wanted instead of a value that is not taken, "" for one that is."""
