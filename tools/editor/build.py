"""Make static/vendor/codemirror.min.js: `python -m tools.editor.build`, or `--check` whether it is what would be made.

npm installs what package-lock.json pins, by integrity hash, into a temporary folder; esbuild puts it into one file. The
lock names no registry: npm's own configuration says which one is asked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

HERE = Path(__file__).resolve().parent
VENDOR = HERE.parents[1] / "static" / "vendor"
BUNDLE, LICENCES = "codemirror.min.js", "codemirror.LICENSE"
GIVEN = ("package.json", "package-lock.json", "codemirror.js")
ESBUILD = ["--bundle", "--minify", "--format=iife", "--global-name=CodeMirror", "--target=es2022",
           "--legal-comments=none"]  # fmt: skip


class Package(TypedDict):
    """One package of the bundle."""

    name: str
    version: str
    integrity: str
    licence: str


def packages(lock: Path = HERE / "package-lock.json") -> list[Package]:
    """What the bundle is made of, by name; what only builds it is left out."""
    entries: dict[str, dict[str, str]] = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return [
        {"name": path.removeprefix("node_modules/"), "version": entry["version"], "integrity": entry["integrity"],
         "licence": entry["license"]}
        for path, entry in sorted(entries.items()) if path and not entry.get("dev")
    ]  # fmt: skip


def build(folder: Path) -> tuple[bytes, str]:
    """The bundle and the licences of what is in it. folder: an empty one to work in."""
    for name in GIVEN:
        shutil.copy(HERE / name, folder)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    made = folder / BUNDLE
    command = [str(folder / "node_modules" / ".bin" / "esbuild"), "codemirror.js", *ESBUILD, f"--outfile={made}"]
    subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    texts = []
    for package in packages():
        licence = (folder / "node_modules" / package["name"] / "LICENSE").read_text(encoding="utf-8").strip()
        texts.append(f"{package['name']} {package['version']}\n\n{licence}\n")
    return made.read_bytes(), "\n\n".join(texts)


def lock_entry(bundle: bytes) -> dict[str, object]:
    """The bundle's entry in static/vendor/LOCK.json."""
    return {
        "name": "codemirror",
        "version": next(p["version"] for p in packages() if p["name"] == "@codemirror/view"),
        "licence": "MIT",
        "licence_file": LICENCES,
        "file": BUNDLE,
        "sha256": hashlib.sha256(bundle).hexdigest(),
        "note": "one file of the packages below, made by tools/editor/build.py; the version is @codemirror/view's",
        "packages": packages(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write bundle, licences and their entry in the lock, or compare with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="build and compare, write nothing")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as folder:
        bundle, licences = build(Path(folder))
    path = VENDOR / "LOCK.json"
    lock: list[dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    others = [entry for entry in lock if entry["file"] != BUNDLE]
    wanted = [*others, lock_entry(bundle)]
    if check:
        same = wanted == lock and (VENDOR / BUNDLE).read_bytes() == bundle
        print("the bundle is current" if same else "the bundle is not what the lock makes: run this without --check")
        return 0 if same else 1
    (VENDOR / BUNDLE).write_bytes(bundle)
    (VENDOR / LICENCES).write_text(licences, encoding="utf-8")
    path.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
