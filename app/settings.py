"""Settings: read from the environment (`TRITONWORTHY_*`) once, when a server starts. docs/settings.md lists each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.thresholds import Thresholds, read_thresholds
from profiler.child.limits import GIB, MIB, Limits, host_memory_bytes

PREFIX = "TRITONWORTHY_"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


LONGEST_S = 1e9
"""Of times: thirty years."""

MAY_BE_EMPTY = frozenset(
    {"shared_dir", "archive_dir", "atlas_dir", "token", "allowed_hosts", "database_url", "thresholds", "ray_token_file"}
)
"""Settings whose empty value is the same as none."""


class Settings(BaseSettings):
    """Everything an operator can set. Names are upper-cased and prefixed in the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False)

    data_dir: Path = Field(default=Path(".data"), description="Folder of the database, uploaded traces and job logs.")
    shared_dir: Path | None = Field(
        default=None,
        description="Folder of uploaded traces, the same for all servers of one database; unset = the data folder.",
    )
    archive_dir: Path | None = Field(
        default=None,
        description="Folder of your own records of measurements; the shipped ones are read as well; unset = `archive`"
        " in the data folder.",
    )
    atlas_dir: Path | None = Field(
        default=None,
        description="Folder of the atlases of your own cards, which `tritonworthy calibrate` writes; they count before"
        " the shipped ones; unset = `atlas` in the data folder.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on. Anything but loopback needs a token.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretStr | None = Field(
        default=None,
        description="Shared secret for `Authorization: Bearer`, at least 16 characters; unset = no sign-in.",
    )
    allowed_hosts: str = Field(
        default="", description="Host names to answer to, in addition to loopback and `host`, separated by commas."
    )
    database_url: str = Field(
        default="",
        description="URL of the database: `postgresql://USER:PASSWORD@HOST/NAME`, or `sqlite:///FILE`; unset = SQLite"
        " in the data folder.",
    )
    max_upload_bytes: int = Field(default=2 * GIB, ge=1, description="Largest upload, as sent.")
    max_uncompressed_bytes: int = Field(default=8 * GIB, ge=1, description="Largest trace, unpacked.")
    min_free_disk_bytes: int = Field(
        default=512 * MIB, ge=0, description="Uploads are refused when less than this would stay free on disk."
    )
    max_stored_bytes: int = Field(
        default=0, ge=0, description="Uploads are refused when all kept files would be larger than this; 0 = no limit."
    )
    keep_days: float = Field(
        default=0.0,
        ge=0,
        description="Traces, regions that were written down, checks and short links are removed after so many days;"
        " 0 = kept. Validations are kept.",
    )
    keep_history_days: float = Field(
        default=0.0,
        ge=0,
        description="Runs in the history of checks are removed after so many days; 0 = kept. Also those whose checks"
        " went before.",
    )
    keep_logs_days: float = Field(
        default=30.0,
        ge=0,
        description="Logs and progress of jobs are removed after so many days; 0 = kept.",
    )
    upload_idle_timeout_s: float = Field(
        default=60.0, gt=0, description="An upload that sends nothing, or next to nothing, for so long is dropped."
    )
    request_timeout_s: float = Field(
        default=20.0, gt=0, description="Time for the head of a request, and for a body that is no upload, to arrive."
    )
    max_connections: int = Field(
        default=512,
        ge=1,
        description="Most connections at once. For one more an idle one is closed; where all have requests it is"
        " answered with 503.",
    )
    max_client_connections: int = Field(
        default=128, ge=1, description="The same for the connections of one address, loopback apart."
    )
    requests_per_minute: int = Field(
        default=6000,
        ge=0,
        description="Most requests of one address in a minute, loopback apart; more are answered with 429. 0 = no"
        " limit.",
    )
    max_region_chars: int = Field(default=65536, ge=1, description="Longest region text.")
    max_shapes: int = Field(default=64, ge=1, description="Most shape bindings in one request.")
    advice_timeout_s: float = Field(
        default=30.0, gt=0, description="Longest wait for advice on one region, and longest work on it."
    )
    advice_cpu_s: float = Field(default=20.0, ge=1, description="Processor time that one region's advice may take.")
    advice_memory_bytes: int = Field(
        default=0,
        ge=0,
        description="Memory that one region's advice may take; 0 = a sixteenth of the host's, at most 2 GiB.",
    )
    advice_processes: int = Field(
        default=2, ge=1, le=64, description="Regions that are advised on at once, each in a process that stands ready."
    )
    oracle: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether Inductor is asked what torch.compile would make of a region: `auto` or `off`. Its process"
        " takes about half a gigabyte of memory.",
    )
    oracle_timeout_s: float = Field(default=10.0, gt=0, description="Longest wait for the oracle's answer.")
    oracle_share: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Share of a trace's time, the heaviest regions first, about which the oracle is asked behind the"
        " first answer; 0 = none. Meanwhile it has a second process.",
    )
    thresholds: str = Field(
        default="",
        description="Numbers of the rule that are not to be the defaults: `name=value, name=value`, or the path of a"
        " TOML file of such lines.",
    )
    spare: bool = Field(
        default=True,
        description="Whether what takes seconds to start is started before it is asked for: the first pages; without a"
        " GPU the process that validations are forked from; with one, and on the hosts of a fleet, the next"
        " validation's process. Each of the two takes about half a gigabyte of memory.",
    )
    max_wait_s: float = Field(default=120.0, ge=0, description="Upper bound of `?wait=` on uploads.")
    read_timeout_s: float = Field(default=600.0, gt=0, description="Time limit for reading one trace.")
    read_memory_bytes: int = Field(
        default=0,
        ge=0,
        description="Memory of each of the two processes that read a trace; 0 = a quarter of the host's, at most"
        " 16 GiB. Files that are mapped to be read do not count.",
    )
    job_timeout_s: float = Field(default=1800.0, gt=0, description="Time limit of one validation.")
    kill_grace_s: float = Field(default=5.0, ge=0, description="Time between SIGTERM and SIGKILL of a child process.")
    budget_s: float = Field(default=120.0, gt=0, description="Time that a validation may spend measuring.")
    queue_cap: int = Field(default=32, ge=1, description="Most jobs waiting per kind; more are answered with 429.")
    client_queue_cap: int = Field(
        default=16, ge=1, description="Most jobs of one address waiting per kind, loopback apart."
    )
    queue_timeout_s: float = Field(
        default=86400.0, gt=0, description="A job that has waited for so long is given up, with a message that says so."
    )
    runner: Literal["local", "ray"] = Field(
        default="local",
        description="Where jobs run: this host (`local`), or a fleet of hosts (`ray`, docs/fleet.md).",
    )
    ray_address: str = Field(default="auto", description="Address of the Ray cluster; `auto` = that of this host.")
    ray_token_file: Path | None = Field(
        default=None, description="File of the cluster's token, as Ray takes it; `ray` needs one."
    )
    fleet_lanes: int = Field(
        default=16, ge=1, le=256, description="Most jobs of a kind that this server has under way on the fleet."
    )
    lease_s: float = Field(default=15.0, gt=0, description="A running job without a heartbeat for so long is lost.")
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines for people (`text`), or one JSON object a line (`json`)."
    )
    shutdown_s: int = Field(default=1, ge=0, description="Time that open requests get when the server stops.")

    @field_validator("advice_memory_bytes", "read_memory_bytes")
    @classmethod
    def _memory_suffices(cls, value: int) -> int:
        if 0 < value < 128 * MIB:
            raise ValueError(f"needs at least {128 * MIB} bytes, or 0")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _is_said(cls, value: object, info: ValidationInfo) -> object:
        """An empty variable is most often one whose own variable was not set: where empty is no value, it says so."""
        if isinstance(value, str) and not value.strip() and info.field_name not in MAY_BE_EMPTY:
            raise ValueError("it is empty: give it a value, or unset it for the default")
        return value

    @field_validator("data_dir", mode="after")
    @classmethod
    def _folder_is_named(cls, value: Path) -> Path:
        if not value.name and not value.is_absolute() and ".." not in value.parts:
            raise ValueError("it is the current folder: name the folder of the data")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _clocks_go_so_far(cls, value: object, info: ValidationInfo) -> object:
        """No clock waits for longer; a larger number would be an error where it is used, long after the start."""
        if isinstance(value, float) and value > LONGEST_S:
            raise ValueError(f"at most {LONGEST_S:g}")
        return value

    @field_validator("archive_dir", "atlas_dir", "shared_dir", "ray_token_file", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return value or None

    @field_validator("database_url")
    @classmethod
    def _database_is_known(cls, value: str) -> str:
        if value:
            from app.storage.database import make_engine  # the command line needs no database

            make_engine(value).dispose()
        return value

    @field_validator("thresholds")
    @classmethod
    def _thresholds_are_known(cls, value: str) -> str:
        read_thresholds(value)
        return value

    @field_validator("token")
    @classmethod
    def _token_is_long(cls, value: SecretStr | None) -> SecretStr | None:
        """An empty variable is an unset one; a short secret can be guessed."""
        if value is None or not value.get_secret_value():
            return None
        if len(value.get_secret_value()) < 16:
            raise ValueError("a token needs at least 16 characters")
        if not value.get_secret_value().isascii() or not value.get_secret_value().isprintable():
            raise ValueError("a token is printable ASCII")
        return value

    @model_validator(mode="after")
    def _exposed_needs_token(self) -> Self:
        if self.host not in LOOPBACK and self.token is None:
            raise ValueError(
                f"host {self.host} is reachable from other machines: set {PREFIX}TOKEN, or {PREFIX}HOST=127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _fleet_needs_a_token(self) -> Self:
        if self.runner == "ray" and self.ray_token_file is None:
            raise ValueError(f"a Ray cluster without a token runs anybody's code: set {PREFIX}RAY_TOKEN_FILE")
        return self

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may carry, lower case, without ports; IPv6 in brackets."""
        names = {name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip()}
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        wildcard = {"0.0.0.0", "[::]"}
        return frozenset(({"127.0.0.1", "localhost", "[::1]", own} | names) - wildcard)

    @property
    def advice_limits(self) -> Limits:
        """Of one question about a region."""
        memory = self.advice_memory_bytes or max(256 * MIB, min(2 * GIB, host_memory_bytes() // 16))
        return Limits(self.advice_timeout_s, 0.0, memory, self.advice_cpu_s)

    @property
    def read_limits(self) -> Limits:
        """Of reading one trace."""
        memory = self.read_memory_bytes or max(512 * MIB, min(16 * GIB, host_memory_bytes() // 4))
        return Limits(self.read_timeout_s, self.kill_grace_s, memory)

    @property
    def rule(self) -> Thresholds:
        """The rule's numbers: the defaults, and what `thresholds` says instead."""
        return read_thresholds(self.thresholds)

    @property
    def url(self) -> str:
        """The database's SQLAlchemy URL."""
        return self.database_url or f"sqlite:///{(self.data_dir / 'tritonworthy.db').resolve()}"

    @property
    def records_dir(self) -> Path:
        """The user's archive."""
        return self.archive_dir or self.data_dir / "archive"

    @property
    def atlases_dir(self) -> Path:
        """The user's atlases. Absolute: it is told to processes that run elsewhere."""
        return (self.atlas_dir or self.data_dir / "atlas").absolute()

    @property
    def uploads_dir(self) -> Path:
        return (self.shared_dir or self.data_dir) / "uploads"

    @property
    def logs_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def oracle_dir(self) -> Path:
        return self.data_dir / "oracle"

    def make_folders(self) -> None:
        """Create the data folder, readable by its owner only. OSError where that cannot be done."""
        for folder in (self.data_dir, self.uploads_dir, self.logs_dir):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def explain(error: ValidationError) -> str:
    """One line per wrong setting, by the name that the operator set; never its value (it may be the token)."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = PREFIX + str(problem["loc"][0]).upper() if problem["loc"] else "settings"
        lines.append(f"{name}: {problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)
