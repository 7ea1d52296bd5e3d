"""Execute the Dockerfile's steps without a container engine: on an overlay of this machine's root, thrown away after.

Runs as root inside its own mount namespace (see docker_steps.sh). COPY, ENV, WORKDIR, RUN and USER do what they say,
in order; then CMD is started as that user and HEALTHCHECK must pass. What differs from the real image is the base:
this machine's system stands in for it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

PORT = "18473"
READY_S = 90


def instructions(text: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) in order, continuation lines joined, comments left out."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def copy(source: Path, root: Path, workdir: str, arguments: str) -> None:
    """COPY: files and folders into the image."""
    *names, target = shlex.split(arguments)
    destination = root / workdir.lstrip("/") / target
    for name in names:
        path = source / name
        if path.is_dir():
            shutil.copytree(path, destination, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, destination / path.name)


def command_in_image(
    root: Path, user: str | None, workdir: str, environment: dict[str, str], command: str
) -> list[str]:
    """The command line that runs a shell command in the image."""
    variables = [f"{k}={v}" for k, v in environment.items()]
    who = [f"--userspec={user}"] if user else []
    script = f"mkdir -p {shlex.quote(workdir)} 2>/dev/null; cd {shlex.quote(workdir)} && {command}"
    return ["chroot", *who, str(root), "/usr/bin/env", *variables, "/bin/sh", "-c", script]


def main(source: Path, root: Path) -> int:
    """Run every instruction; 0 where all succeeded and the health check passed."""
    environment = {
        k: v for k, v in os.environ.items() if k.startswith(("PIP_", "LANG", "HTTP", "http", "SSL", "REQUESTS"))
    }
    environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment["DEBIAN_FRONTEND"] = "noninteractive"
    workdir, user, health, start = "/", None, "", [""]
    for name, rest in instructions((source / "Dockerfile").read_text()):
        print(f"{name} {rest[:100]}", flush=True)
        if name == "RUN":
            subprocess.run(command_in_image(root, user, workdir, environment, rest), check=True)
        elif name == "COPY":
            copy(source, root, workdir, rest)
        elif name == "WORKDIR":
            workdir = rest
            (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            key, value = rest.split("=", 1)
            environment[key] = value.replace("$PATH", environment["PATH"])
        elif name == "USER":
            user = rest
        elif name == "HEALTHCHECK":
            health = rest.split("CMD", 1)[1].strip()
        elif name == "CMD":
            start = json.loads(rest)
        elif name not in ("FROM", "VOLUME", "EXPOSE"):
            print(f"docker_steps does not know {name}", file=sys.stderr)
            return 1
    environment |= {"TRITONWORTHY_TOKEN": "docker-steps-token", "TRITONWORTHY_PORT": PORT}
    refused = subprocess.run(
        command_in_image(root, user, workdir, {**environment, "TRITONWORTHY_TOKEN": ""}, shlex.join(start)),
        timeout=READY_S,
    )
    if refused.returncode == 0:
        print("the server started on 0.0.0.0 without a token", file=sys.stderr)
        return 1
    return serve(root, user, workdir, environment, start, health)


def serve(
    root: Path, user: str | None, workdir: str, environment: dict[str, str], start: list[str], health: str
) -> int:
    """Start CMD as the image's user and wait for the health check."""
    command = "exec " + shlex.join(start)
    server = subprocess.Popen(command_in_image(root, user, workdir, environment, command))
    try:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and server.poll() is None:
            check = subprocess.run(
                command_in_image(root, user, workdir, environment, health), stderr=subprocess.DEVNULL
            )
            if check.returncode == 0:
                print("health check passed: every step of the Dockerfile works", flush=True)
                return 0
            time.sleep(1)
        print("the health check never passed", file=sys.stderr)
        return 1
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
