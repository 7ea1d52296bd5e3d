"""Settings: read from the environment (`TRITONWORTHY_*`) once, when a server starts. docs/settings.md lists each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.advice.thresholds import Thresholds
from app.thresholds import read_thresholds

PREFIX = "TRITONWORTHY_"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

MIB = 1024 * 1024
GIB = 1024 * MIB


class Settings(BaseSettings):
    """Everything an operator can set. Names are upper-cased and prefixed in the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data_dir: Path = Field(default=Path(".data"), description="Folder of the database, uploaded traces and job logs.")
    archive_dir: Path | None = Field(
        default=None,
        description="Folder of your own records of measurements, beside the shipped ones; unset = `archive` in the data"
        " folder.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on. Anything but loopback needs a token.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretStr | None = Field(
        default=None,
        description="Shared secret for `Authorization: Bearer`, at least 16 characters; unset = no sign-in.",
    )
    allowed_hosts: str = Field(
        default="", description="Host names to answer to beside loopback and `host`, separated by commas."
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL of the database; unset = SQLite in the data folder."
    )
    max_upload_bytes: int = Field(default=2 * GIB, ge=1, description="Largest upload, as sent.")
    max_uncompressed_bytes: int = Field(default=8 * GIB, ge=1, description="Largest trace after gzip is undone.")
    min_free_disk_bytes: int = Field(
        default=512 * MIB, ge=0, description="Uploads are refused when less than this would stay free on disk."
    )
    upload_idle_timeout_s: float = Field(
        default=60.0, gt=0, description="An upload that sends nothing for so long is dropped."
    )
    max_region_chars: int = Field(default=65536, ge=1, description="Longest region text.")
    max_shapes: int = Field(default=64, ge=1, description="Most shape bindings in one request.")
    advice_timeout_s: float = Field(default=30.0, gt=0, description="Longest wait for advice on one region.")
    oracle: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether Inductor is asked what torch.compile would make of a region: `auto` or `off`. Its process"
        " takes about half a gigabyte of memory.",
    )
    oracle_timeout_s: float = Field(default=10.0, gt=0, description="Longest wait for the oracle's answer.")
    thresholds: str = Field(
        default="",
        description="Numbers of the rule that are not to be the defaults: `name=value, name=value`, or the path of a"
        " TOML file of such lines.",
    )
    spare: bool = Field(
        default=True,
        description="Whether the next validation's process is started before it is asked for, on a host with a GPU: "
        "a verdict comes seconds earlier, and the process takes about half a gigabyte of memory.",
    )
    max_wait_s: float = Field(default=120.0, ge=0, description="Upper bound of `?wait=` on uploads.")
    read_timeout_s: float = Field(default=600.0, gt=0, description="Time limit for reading one trace.")
    read_memory_bytes: int = Field(
        default=16 * GIB, ge=256 * MIB, description="Address space of the process that reads a trace (RLIMIT_AS)."
    )
    job_timeout_s: float = Field(default=1800.0, gt=0, description="Time limit of one validation.")
    kill_grace_s: float = Field(default=5.0, ge=0, description="Time between SIGTERM and SIGKILL of a child process.")
    budget_s: float = Field(default=120.0, gt=0, description="Time that a validation may spend measuring.")
    queue_cap: int = Field(default=32, ge=1, description="Most jobs waiting per kind; more are answered with 429.")
    lease_s: float = Field(default=15.0, gt=0, description="A running job without a heartbeat for so long is lost.")
    shutdown_s: int = Field(default=3, ge=0, description="Time that open connections get when the server stops.")

    @field_validator("archive_dir", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return value or None

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

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may carry, lower case, without ports; IPv6 in brackets."""
        names = {name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip()}
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        wildcard = {"0.0.0.0", "[::]"}
        return frozenset(({"127.0.0.1", "localhost", "[::1]", own} | names) - wildcard)

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
    def uploads_dir(self) -> Path:
        return self.data_dir / "uploads"

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
