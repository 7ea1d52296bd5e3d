"""Known holes in what is installed: `python -m tools.checks.audit`, in CI and by hand.

Asks the vulnerability service about every installed package, by pip-audit. 0: none is known. 1: some are; each is named
with the version that mends it. Where the service cannot be reached, or knows none of the packages (a mirror that has
no such data), it says so in a line that begins with "not audited:" and ends with 0 (CI without a network is no fault of
the change), or with 2 by --strict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OWN = "tritonworthy"

ACCEPTED: Mapping[str, str] = {}
"""Id of a known hole -> why it does not matter here. An entry that no longer applies fails the audit."""


@dataclass(frozen=True, slots=True)
class Audit:
    """packages: how many the service knew. findings: one line each. skipped: the others, such as local builds."""

    packages: int
    findings: tuple[str, ...]
    skipped: tuple[str, ...]


class UnreachableError(Exception):
    """The vulnerability service did not answer."""


def ask(service: str, timeout_s: float) -> str:
    """pip-audit's JSON for this environment. UnreachableError where it has none."""
    command = [
        sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off",
        "--vulnerability-service", service, "--timeout", str(max(1, int(timeout_s))), "--local", "--skip-editable",
    ]  # fmt: skip
    try:
        # Several requests for each package at worst; the whole is bounded too.
        done = subprocess.run(command, capture_output=True, text=True, timeout=20 * timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"no answer within {20 * timeout_s:.0f} s") from None
    if not done.stdout.lstrip().startswith("{"):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise UnreachableError(last[:200])
    return done.stdout


def read(text: str, accepted: Mapping[str, str] = ACCEPTED) -> Audit:
    """pip-audit's JSON as findings; what is accepted is left out, and an acceptance without a hole is a finding."""
    packages: list[dict[str, Any]] = [p for p in json.loads(text)["dependencies"] if p["name"] != OWN]
    skipped = tuple(p["name"] for p in packages if "skip_reason" in p)
    problems, unused = [], set(accepted)
    for package in packages:
        for hole in package.get("vulns", ()):
            names = {hole["id"], *hole.get("aliases", ())}
            unused -= names
            if not names & set(accepted):
                mended = ", ".join(hole["fix_versions"]) or "no version"
                problems.append(f"{package['name']} {package['version']}: {hole['id']}, mended in {mended}")
    problems += [f"{name} is accepted, and nothing installed has it" for name in sorted(unused)]
    return Audit(len(packages) - len(skipped), tuple(problems), skipped)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", default="pypi", choices=("pypi", "osv"))
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds for one answer of the service")
    parser.add_argument("--strict", action="store_true", help="exit with 2 where nothing could be audited")
    given = parser.parse_args(argv)
    try:
        audit = read(ask(given.service, given.timeout))
    except UnreachableError as error:
        print(f"not audited: the vulnerability service could not be asked ({error})")
        return 2 if given.strict else 0
    except (ValueError, KeyError, TypeError) as error:
        print(f"not audited: pip-audit's answer is not understood ({error!r})")
        return 2 if given.strict else 0
    for line in audit.findings:
        print(line)
    if not audit.packages:
        print("not audited: the service knows none of what is installed")
        return 2 if given.strict else 0
    if audit.skipped:
        print(f"not audited: the service does not know {', '.join(audit.skipped)}")
    print(f"{audit.packages} packages audited, {len(audit.findings)} findings")
    return 1 if audit.findings else 0


if __name__ == "__main__":
    sys.exit(main())
