"""What somebody gets who installs the package: `python -m tools.checks.check_wheel [--source FOLDER] [--keep FOLDER]`.

Builds the sdist from what git tracks, and the wheel from the sdist, with pip and setuptools alone; installs the wheel
in a fresh environment, in an empty folder outside the checkout; and uses it there: the command line, a server with its
pages and their static files, an upload, advice, a validation without a GPU, a report. Nothing of the checkout can be
imported meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent

T = TypeVar("T")

PACKAGES = ("app", "kernels", "profiler", "tritonworthy")
ASSETS = ("static", "templates")
"""Folders at the top of the tree that the wheel has in app/web."""

SDIST_ALSO = ("CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "constraints.txt", "pyproject.toml", "setup.py")
"""Files at the top of the tree that the sdist has."""

STEP_S = 300.0
"""The most that a server's start, a read or a validation may take: long, so that a busy machine fails nothing."""

TRACE = "handrolled_blocks.json.gz"
REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
ADDRESS = re.compile(r"running on (http://[\d.]+:\d+)")
STATIC_LINK = re.compile(r'(?:src|href)="(/static/[^"]+)"')


class WheelError(Exception):
    """What somebody who installed the package would have met."""


def tracked_files(source: Path) -> list[str]:
    """Paths that git tracks, and that are still there."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=source, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (source / name).is_file()]


def expected_in_wheel(tracked: list[str]) -> set[str]:
    """Where the wheel must have each tracked file of the packages, the templates and the static files."""
    modules = {name for name in tracked if name.startswith(tuple(f"{p}/" for p in PACKAGES))}
    return modules | {f"app/web/{name}" for name in tracked if name.startswith(tuple(f"{a}/" for a in ASSETS))}


def expected_in_sdist(tracked: list[str]) -> set[str]:
    """What the sdist must have: all that a wheel is built from, and what a reader looks for first."""
    folders = tuple(f"{name}/" for name in (*PACKAGES, *ASSETS))
    return {name for name in tracked if name.startswith(folders)} | set(SDIST_ALSO)


def run(command: list[str], folder: Path, environment: Mapping[str, str], expected: int = 0) -> str:
    """Standard output. WheelError for another exit status."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != expected:
        raise WheelError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def build(
    python: str, source: Path, tracked: list[str], folder: Path, environment: Mapping[str, str]
) -> tuple[Path, Path]:
    """(sdist, wheel), each held to what git tracks. The wheel is built from the unpacked sdist."""
    copy = folder / "copy"
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, copy / name)
    made = folder / "dist"
    made.mkdir()
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run([python, "-c", code, str(made)], copy, environment)
    (sdist,) = made.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(folder / "unpacked", filter="data")
    require("the sdist", expected_in_sdist(tracked), held)
    (unpacked,) = (folder / "unpacked").iterdir()
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made)]
    run([python, "-m", "pip", "wheel", *options, "."], unpacked, environment)
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        info = {name.split(".dist-info/")[1] for name in archive.namelist() if ".dist-info/" in name}
    require("the wheel", expected_in_wheel(tracked), names)
    require("the wheel's dist-info", {"METADATA", "entry_points.txt", "licenses/LICENSE"}, info)
    if more := sorted(names - expected_in_wheel(tracked)):
        raise WheelError(f"the wheel has what git does not track: {more}")
    return sdist, wheel


def require(what: str, expected: set[str], held: set[str]) -> None:
    """WheelError where something is missing."""
    if missing := sorted(expected - held):
        raise WheelError(f"{what} lacks {len(missing)} files: {', '.join(missing[:20])}")


@contextmanager
def serving(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a server with an empty data folder, until the block ends."""
    log = folder / "serve.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [command, "serve", "--port", "0", "--data-dir", str(folder / "data")],
            cwd=folder, env=environment, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        yield wait_for(lambda: _ready(server, log), "the server is ready")
    except WheelError as failed:
        raise WheelError(f"{failed}\n{log.read_text()[-4000:]}") from failed
    finally:
        server.terminate()
        server.wait(60)


def _ready(server: subprocess.Popen[bytes], log: Path) -> str | None:
    if server.poll() is not None:
        raise WheelError(f"serve ended with {server.returncode}")
    address = ADDRESS.search(log.read_text())
    return address[1] if address and fetch(f"{address[1]}/readyz")[0] == 200 else None


def wait_for(answered: Callable[[], T | None], what: str) -> T:
    """The first answer that is not None."""
    deadline = time.monotonic() + STEP_S
    while time.monotonic() < deadline:
        answer = answered()
        if answer is not None:
            return answer
        time.sleep(0.2)
    raise WheelError(f"not within {STEP_S:.0f} s: {what}")


def fetch(url: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, bytes]:
    """(status, body) of a GET, or of a POST of a body."""
    accepted = "text/html" if body is None and "/api/" not in url else "application/json"
    headers = {"Content-Type": kind, "Accept": accepted}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=STEP_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def fetch_json(url: str, body: bytes | None = None, kind: str = "application/json") -> Any:
    """The answer's JSON. WheelError for an error."""
    status, answer = fetch(url, body, kind)
    if status >= 400:
        raise WheelError(f"{url}: {status} {answer[:500]!r}")
    return json.loads(answer)


def use_server(base: str, package: Path) -> None:
    """Pages with all that they refer to, an upload, advice, a validation to its end."""
    api = f"{base}/api/v1"
    pages = ["/", "/api", "/learn", "/history", "/accuracy", "/device"]
    trace = fetch_json(
        f"{api}/traces?filename={TRACE}", (package / "examples" / TRACE).read_bytes(), "application/gzip"
    )
    read = f"{api}/traces/{trace['id']}"
    trace = wait_for(lambda: _unless_under_way(fetch_json(read), status=("reading",)), "the trace is read")
    if trace["status"] != "ready" or not trace["regions"]:
        raise WheelError(f"the example ended {trace['status']}: {trace.get('error')}")
    pages.append(f"/traces/{trace['id']}")
    text = next(r["text"] for r in trace["regions"] if r.get("text"))
    advice = fetch_json(f"{api}/advice", json.dumps({"region": text, "oracle": "off"}).encode())
    if not advice["tool"]:
        raise WheelError(f"no advice: {advice}")
    body = {"region": REGION, "device": ["cpu"], "candidates": ["eager"]}
    validation = fetch_json(f"{api}/validations", json.dumps(body).encode())
    where = f"{api}/validations/{validation['id']}"
    validation = wait_for(
        lambda: _unless_under_way(fetch_json(where), state=("queued", "running")), "the validation has ended"
    )
    if (validation["state"], validation["candidates"][0]["status"]) != ("done", "correct"):
        raise WheelError(f"the validation ended {validation}")
    pages.append(f"/validations/{validation['id']}")
    links: set[str] = {"/static/app.css"}
    for page in pages:
        status, answer = fetch(base + page)
        if status != 200 or b"<html" not in answer:
            raise WheelError(f"{page}: {status} {answer[:500]!r}")
        links |= set(STATIC_LINK.findall(answer.decode()))
    for link in sorted(links):
        status, answer = fetch(base + link)
        if status != 200 or not answer:
            raise WheelError(f"{link}: {status}")
    print(f"served: {len(pages)} pages, {len(links)} static files, a trace, advice and a validation", flush=True)


def _unless_under_way(answer: dict[str, Any], **under_way: tuple[str, ...]) -> dict[str, Any] | None:
    """The answer; None while a field of it has one of the values that it has under way."""
    return None if any(answer[field] in values for field, values in under_way.items()) else answer


def check(source: Path, folder: Path) -> None:
    """All of it, in an empty folder. WheelError at the first thing that fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRITONWORTHY_", "VIRTUAL_ENV"))}
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment["PIP_CACHE_DIR"] = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    venv.create(folder / "venv", with_pip=True)
    python, command = (str(folder / "venv" / "bin" / name) for name in ("python", "tritonworthy"))
    requires = tomllib.loads((source / "pyproject.toml").read_text())["build-system"]["requires"]
    run([python, "-m", "pip", "install", "--quiet", *requires], folder, environment)
    tracked = tracked_files(source)
    sdist, wheel = build(python, source, tracked, folder, environment)
    print(f"built {sdist.name}, {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
    constraints = str(source / "constraints.txt")
    pinned = ["--quiet", "--constraint", constraints]
    run([python, "-m", "pip", "install", *pinned, f"{wheel}[server]"], folder, environment)
    print("installed", flush=True)
    empty = folder / "empty"
    empty.mkdir()
    code = "import app, kernels, profiler; print(*(m.__path__[0] for m in (app, kernels, profiler)), sep='\\n')"
    package = Path(run([python, "-I", "-c", code], empty, environment).split("\n")[0])
    if not package.is_relative_to(folder / "venv"):
        raise WheelError(f"app is imported from {package}")
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    if version not in run([command, "--version"], empty, environment):
        raise WheelError("--version does not say the version")
    run([command, "--help"], empty, environment)
    with serving(command, empty, environment) as base:
        use_server(base, package)
    example = package / "examples" / TRACE
    run([command, "report", str(example), "--out", str(empty / "report.html")], empty, environment)
    if "</html>" not in (empty / "report.html").read_text():
        raise WheelError("the report is no whole page")
    print("reported", flush=True)


def main() -> int:
    """0 where all of it works, else 1 with what failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--keep", type=Path, help="work in this empty folder and leave it")
    arguments = parser.parse_args()
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            check(arguments.source.resolve(), arguments.keep.resolve())
        else:
            with tempfile.TemporaryDirectory() as folder:
                check(arguments.source.resolve(), Path(folder).resolve())
    except WheelError as failed:
        print(f"the wheel is no good: {failed}", file=sys.stderr)
        return 1
    print("the wheel works where it is installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
