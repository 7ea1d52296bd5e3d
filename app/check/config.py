"""What a check asserts, from `tritonworthy.toml` or a request's body; every mistake is an error that names its key.

An assertion is `off`, `warn` or `error`, alone or with options:

    [assertions]
    library = "warn"
    compile-fuses = { level = "error", min_share = 0.05 }
    "beats:rms_norm" = ["error", { candidate = "triton:rms_norm", over = "compile" }]

What follows a colon only tells assertions of one kind apart. A file that the command line reads may also name kernels
of its repository, which are run; a server takes none:

    [[kernels]]
    name = "our norm"
    kernel = "my_kernels.py:rms_norm"
    region = "rms_norm.txt"
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from app.advice import criteria
from app.check.toml_bounds import BoundsError, check_bounds
from app.check.toml_keys import line_of
from app.objects.check import CheckEvidence as Evidence
from app.objects.check import Severity as Level
from profiler.hardware import find_device

LEVELS: tuple[Level, ...] = ("off", "warn", "error")
EVIDENCE: tuple[Evidence, ...] = ("predicted", "recorded", "measured")
"""Weakest first. recorded: the Archive has this region, timed on this device; measured: timed by this host."""

TOOLS = ("library", "compile", "triton", "cuda")
"""Fires on a region that the advice has this tool for."""

CRITERIA: Mapping[str, tuple[bool, bool]] = {
    criterion.name: (criterion.fires_at, not criterion.always) for criterion in criteria.CRITERIA
}
"""Criterion -> (fires where `holds` is this, only where there is something to do about the region)."""

OF_REGIONS = frozenset(
    {"region", "min_share", "min_speedup", "min_step_speedup", "evidence", "new_only"}
)  # fmt: skip
OPTIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(TOOLS, OF_REGIONS),
    **{name: OF_REGIONS | {"holds"} for name in CRITERIA},
    "beats": frozenset({"region", "min_share", "min_speedup", "evidence", "candidate", "over"}),
    "regression": frozenset({"max_increase"}),
    "region-regression": frozenset({"region", "min_share", "max_increase"}),
    "step-time": frozenset({"max_us"}),
    "gpu-idle": frozenset({"max_share"}),
    "obstacle": frozenset({"kind", "new_only"}),
    "step-option": frozenset({"tool", "min_saving", "new_only"}),
    "history": frozenset({"region", "metric", "min_increase", "confidence", "min_runs"}),
}
"""Kind of assertion -> the options that it takes."""

REQUIRED: Mapping[str, str] = {"beats": "candidate", "step-time": "max_us", "gpu-idle": "max_share"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_ASSERTIONS = 200
MAX_TEXT = 200


class ConfigError(ValueError):
    """A configuration that cannot be taken. key: the place in it; line: from 1, where it is a file's."""

    def __init__(self, key: str, problem: str, file: str = "", line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        self.key = key
        self.problem = problem
        self.line = line
        self.message = f"{place}{key}: {problem}" if key else f"{place}{problem}"
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class Assertion:
    """One line of a configuration. Shares and increases are 0 to 1; speed-ups are factors; times µs of one step."""

    name: str  # with what follows the colon
    check: str  # the kind: a tool, a criterion, or one of OPTIONS' others
    level: Level
    region: str = "*"  # glob on the region's name or key
    min_share: float = 0.0  # of the step; a region whose share is not known counts
    min_speedup: float | None = None  # of the region
    min_step_speedup: float | None = None
    evidence: Evidence = "predicted"  # the least that counts
    new_only: bool = False  # only what the baseline has not
    holds: bool | None = None
    max_increase: float = 0.05
    max_us: float | None = None
    max_share: float | None = None
    kind: str = "*"  # glob on the kind of what stops torch.compile
    tool: str = "*"  # glob on what is reached for
    min_saving: float = 0.0  # of the step; an option without a predicted time has none
    metric: str = "*"  # glob on what a history keeps
    min_increase: float = 0.02
    confidence: float = 0.9999  # of one run, that what it shows is no chance
    min_runs: float = 5  # of one environment, before this one
    candidate: str = ""
    over: str = ""  # "" is the fastest of the others

    @property
    def options(self) -> dict[str, Any]:
        """What is not as by default, for reports."""
        skipped = ("name", "check", "level")
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in skipped and getattr(self, f.name) != f.default
        }


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A kernel of the repository that has to pay. kernel: FILE.py:FUNCTION; region: a file; both relative to the
    configuration's folder. devices: those on which it is judged; all where there is none."""

    name: str
    kernel: str
    region: str
    level: Level = "error"
    devices: tuple[str, ...] = ()

    @property
    def assertion(self) -> str:
        """As a report calls it."""
        return f"kernel:{self.name}"

    @property
    def options(self) -> dict[str, Any]:
        """For reports."""
        return {
            "kernel": self.kernel,
            "region": self.region,
            **({"devices": list(self.devices)} if self.devices else {}),
        }


@dataclass(frozen=True, slots=True)
class Config:
    """Assertions, and how regions are looked at. validate: measure on this host what assertions want measured."""

    assertions: tuple[Assertion, ...]
    kernels: tuple[KernelCheck, ...] = ()
    name: str = "tritonworthy"
    validate: bool = False
    device: str | None = None
    share_of_step: float | None = None
    step_time_us: float | None = None
    target_step_time_us: float | None = None
    budget_s: float = 120.0
    source_root: str = ""

    @property
    def active(self) -> tuple[Assertion, ...]:
        return tuple(a for a in self.assertions if a.level != "off")


DEFAULTS = Config(
    (
        Assertion("step-option", "step-option", "warn", min_saving=0.01),
        *(Assertion(tool, tool, "warn", min_share=0.01) for tool in TOOLS),
    )
)
"""Without a configuration: everything that the advice would do about 1 % of the step or more is a warning."""


@dataclass(frozen=True, slots=True)
class _Number:
    low: float
    high: float
    what: str


_SHARE = _Number(0.0, 1.0, "a share, 0 to 1")
_FACTOR = _Number(0.0, 1e6, "a factor, such as 1.2")
_TIME = _Number(0.0, 1e12, "a time in µs")

_TYPES: Mapping[str, _Number | type[bool] | type[str] | tuple[str, ...]] = {
    "region": str, "kind": str, "candidate": str, "over": str, "new_only": bool, "holds": bool,
    "metric": str, "min_increase": _Number(0.0, 1e3, "a share, such as 0.02 for 2 %"),
    "confidence": _Number(0.5, 0.9999999, "a probability, such as 0.9999"),
    "min_runs": _Number(3.0, 1e3, "runs, 3 or more"),
    "tool": str, "min_saving": _SHARE, "min_share": _SHARE, "max_share": _SHARE,
    "max_increase": _Number(0.0, 1e3, "a share, such as 0.05 for 5 %"),
    "min_speedup": _FACTOR, "min_step_speedup": _FACTOR, "max_us": _TIME, "evidence": EVIDENCE,
    "name": str, "kernel": str, "validate": bool, "device": str, "share_of_step": _SHARE, "step_time_us": _TIME,
    "target_step_time_us": _TIME, "budget_s": _Number(1.0, 86400.0, "seconds, 1 to 86400"), "source_root": str,
}  # fmt: skip
_OF_CHECK = tuple(f.name for f in fields(Config) if f.name not in ("assertions", "kernels"))
_OF_KERNEL = tuple(f.name for f in fields(KernelCheck))
MAX_KERNELS = 100
NO_CODE = (
    "a server runs nobody's code: `tritonworthy check` on a host of your own measures kernels; take these tables out of"
    " what is sent"
)


def read_toml(text: str, file: str = "tritonworthy.toml", *, runs_kernels: bool = False) -> Config:
    """The configuration in a file's text. Raises ConfigError with the file, the line and the key.

    runs_kernels: the user's own files may be run, as by the command line.
    """
    try:
        check_bounds(text)
        data = tomllib.loads(text)
    except BoundsError as error:
        raise ConfigError("", error.problem, file, error.line) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        last = len(text.splitlines()) or 1  # "at end of document"
        raise ConfigError("", f"not TOML: {error}", file, int(line[1]) if line else last) from None
    except RecursionError:
        raise ConfigError("", "not TOML: nested too deep", file) from None
    try:
        return from_mapping(data, runs_kernels=runs_kernels)
    except ConfigError as error:
        raise ConfigError(error.key, error.problem, file, line_of(text, error.key)) from None


def from_mapping(data: Mapping[str, Any], *, runs_kernels: bool = False) -> Config:
    """The configuration as TOML or JSON gives it: {"check": {...}, "assertions": {...}}. Raises ConfigError.

    runs_kernels: as in `read_toml`; then "kernels" is a list of tables.
    """
    if "kernels" in data and not runs_kernels:
        raise ConfigError("kernels", NO_CODE)
    _check_known("", data, ("check", "assertions", *(["kernels"] if runs_kernels else [])))
    check, asserted = (_table(data, key) for key in ("check", "assertions"))
    _check_known("check", check, _OF_CHECK)
    options = {key: _value(f"check.{key}", key, value) for key, value in check.items()}
    if "name" in options and not NAME.fullmatch(options["name"]):
        raise ConfigError("check.name", "lower-case letters, digits and single hyphens between them")
    if len(asserted) > MAX_ASSERTIONS:
        raise ConfigError("assertions", f"at most {MAX_ASSERTIONS} assertions, please")
    kernels = _kernels(data.get("kernels", []))
    if "assertions" not in data:
        return Config(DEFAULTS.assertions, kernels, **options)
    return Config(tuple(_assertion(name, value) for name, value in asserted.items()), kernels, **options)


def _kernels(tables: Any) -> tuple[KernelCheck, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ConfigError("kernels", f"[[kernels]] is a list of tables, not {_show(tables)}")
    if len(tables) > MAX_KERNELS:
        raise ConfigError("kernels", f"at most {MAX_KERNELS} kernels, please")
    checks = [_kernel(f"kernels.{number}", table) for number, table in enumerate(tables, 1)]
    names = [check.name for check in checks]
    for number, name in enumerate(names, 1):
        if name in names[: number - 1]:
            raise ConfigError(f"kernels.{number}.name", f"there is a kernel called {_show(name)} already")
    return tuple(checks)


def _kernel(place: str, table: Mapping[str, Any]) -> KernelCheck:
    _check_known(place, table, _OF_KERNEL)
    for key in ("name", "kernel", "region"):
        if key not in table:
            raise ConfigError(place, f"a kernel needs {key}")
    texts = {key: _value(_join(place, key), key, table[key]) for key in ("name", "kernel", "region")}
    level = table.get("level", "error")
    if level not in LEVELS:
        raise ConfigError(f"{place}.level", f"the level is off, warn or error, not {_show(level)}")
    devices = table.get("devices", [])
    if not isinstance(devices, list):
        raise ConfigError(f"{place}.devices", f'a list such as ["H100"] is wanted, not {_show(devices)}')
    for device in devices:
        if find_device(_value(f"{place}.devices", "device", device)) is None:
            raise ConfigError(f"{place}.devices", f"there is no device called {_show(device)} in the table")
    return KernelCheck(**texts, level=cast("Level", level), devices=tuple(devices))


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"a table is wanted, not {_show(value)}")
    return value


def _check_known(place: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(_join(place, key), f"there is no such key{_suggest(str(key), known)}")


def _assertion(name: str, value: Any) -> Assertion:
    place = _join("assertions", name)
    check, _, label = name.partition(":")
    if check not in OPTIONS:
        raise ConfigError(place, f"there is no such assertion{_suggest(check, tuple(OPTIONS))}")
    if len(name) > MAX_TEXT or (":" in name and not label):
        raise ConfigError(place, f"after the colon there are 1 to {MAX_TEXT} characters")
    level, options = _parts(place, value)
    if level not in LEVELS:
        raise ConfigError(place, f"the level is off, warn or error, not {_show(level)}")
    known = tuple(sorted(OPTIONS[check]))
    for key in options:
        if key not in known:
            raise ConfigError(_join(place, key), f"{check} has no such option{_suggest(str(key), known)}")
    taken = {key: _value(_join(place, key), key, given) for key, given in options.items()}
    if (needed := REQUIRED.get(check)) and needed not in taken and level != "off":
        raise ConfigError(place, f"{check} needs the option {needed}")
    if check == "beats":
        taken = {"min_speedup": 1.0, "evidence": "recorded", **taken}
        if taken["evidence"] == "predicted":
            raise ConfigError(_join(place, "evidence"), "beats compares times: recorded or measured ones")
    return Assertion(name, check, cast("Level", level), **taken)


def _parts(place: str, value: Any) -> tuple[Any, Mapping[str, Any]]:
    """(level, options) of the three ways to write an assertion."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, list) and 1 <= len(value) <= 2 and all(isinstance(v, Mapping) for v in value[1:]):
        return value[0], value[1] if len(value) == 2 else {}
    if isinstance(value, Mapping) and "level" in value:
        return value["level"], {k: v for k, v in value.items() if k != "level"}
    wanted = 'a level, such as "warn", or { level = "warn", ... }'
    raise ConfigError(place, f"{wanted} is wanted, not {_show(value)}")


def _value(place: str, key: str, value: Any) -> Any:
    """The value, checked. Whole numbers are numbers; true is none."""
    wanted = _TYPES[key]
    if isinstance(wanted, _Number):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not wanted.low <= value <= wanted.high:
            raise ConfigError(place, f"{wanted.what} is wanted, not {_show(value)}")
        return float(value)
    if isinstance(wanted, tuple):
        if value not in wanted:
            raise ConfigError(place, f"one of {', '.join(wanted)} is wanted, not {_show(value)}")
        return value
    if not isinstance(value, wanted):
        raise ConfigError(place, f"{'true or false' if wanted is bool else 'a text'} is wanted, not {_show(value)}")
    if isinstance(value, str) and not 0 < len(value) <= MAX_TEXT:
        raise ConfigError(place, f"a text of 1 to {MAX_TEXT} characters is wanted")
    return value


def _join(place: str, key: object) -> str:
    text = str(key)[:MAX_TEXT]
    shown = text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else f'"{text}"'
    return f"{place}.{shown}" if place else shown


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # thousands of digits; nested too deep
        return "what would be too long to show"


def _suggest(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else f". There are: {', '.join(known)}"
