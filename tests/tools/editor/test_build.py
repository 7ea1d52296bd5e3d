"""The editor's bundle is of the packages that the lock pins, no registry is named, and it stays light."""

from __future__ import annotations

import gzip
import json
import re

from tools.editor import build

LOCK = (build.HERE / "package-lock.json").read_text(encoding="utf-8")
BUNDLE = (build.VENDOR / build.BUNDLE).read_bytes()


def test_the_vendored_entry_is_what_the_lock_pins() -> None:
    (entry,) = [e for e in json.loads((build.VENDOR / "LOCK.json").read_text()) if e["file"] == build.BUNDLE]
    assert entry == build.lock_entry(BUNDLE)
    assert {p["licence"] for p in entry["packages"]} == {"MIT"}
    assert all(re.fullmatch(r"sha512-[\w+/]+=*", p["integrity"]) for p in entry["packages"])


def test_every_package_has_its_licence_with_the_bundle() -> None:
    licences = (build.VENDOR / build.LICENCES).read_text(encoding="utf-8")
    for package in build.packages():
        assert f"{package['name']} {package['version']}\n" in licences


def test_versions_are_exact_and_no_registry_is_named() -> None:
    asked = json.loads((build.HERE / "package.json").read_text(encoding="utf-8"))
    pinned = {p["name"]: p["version"] for p in build.packages()}
    assert asked["dependencies"].items() <= pinned.items()
    assert "://" not in LOCK


def test_the_bundle_asks_nobody_and_evaluates_nothing() -> None:
    text = BUNDLE.decode()
    assert set(re.findall(r"https?://[^\"'`\s)]+", text)) == {"http://www.w3.org/2000/svg"}  # a namespace
    assert not re.search(r"\beval\(|new Function\(", text)


def test_the_bundle_is_light() -> None:
    assert len(gzip.compress(BUNDLE, 9)) < 110_000
