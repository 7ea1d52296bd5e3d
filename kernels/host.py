"""What this host can run: GPU, versions, packages, features. Asked of a short child process: no torch here."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from kernels.packages import DISTRIBUTIONS

PACKAGES = DISTRIBUTIONS
"""Packages that a library entry may ask for: the name they are imported under -> their distribution's."""

PROBE_TIMEOUT_S = 120.0

_PROBE = """
import os, threading
# The other end of stdin is the parent's: it ends with it, also when it is killed.
threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
import importlib.metadata, importlib.util, json, platform, sys
out = {"gpu": None, "capability": None, "versions": {"python": platform.python_version()}, "features": [], "note": ""}
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:  # looking for a part of a package imports the package, which may fail in any way
        return False
names = json.loads(sys.argv[1])
out["packages"] = [n for n in names if there(n)]
for name in out["packages"]:
    try:
        out["versions"][name] = importlib.metadata.version(names[name])
    except importlib.metadata.PackageNotFoundError:
        pass
if "torch" in out["packages"]:
    import torch
    import torch.nn.functional as F
    out["versions"]["torch"] = torch.__version__
    out["versions"]["cuda"] = torch.version.cuda or ""
    out["versions"]["hip"] = torch.version.hip or ""
    for name in ("rms_norm", "grouped_mm", "scaled_mm", "scaled_grouped_mm", "linear_cross_entropy"):
        if hasattr(F, name):
            out["features"].append("F." + name)
    for name in ("_addmm_activation", "_fused_rms_norm", "_grouped_mm", "_int_mm", "_weight_int4pack_mm",
                 "_fused_adamw_"):
        if hasattr(torch.ops.aten, name):
            out["features"].append("aten." + name)
    parts = {"flex_attention": "torch.nn.attention.flex_attention", "varlen_attn": "torch.nn.attention.varlen",
             "associative_scan": "torch._higher_order_ops.associative_scan", "native.topk": "torch._native.ops.topk",
             "native.scatter_add": "torch._native.ops.scatter_add"}
    out["features"] += [name for name, module in parts.items() if there(module)]
    try:
        if torch.cuda.is_available():
            out["gpu"] = torch.cuda.get_device_name(0)
            if torch.version.hip is None:
                out["capability"] = list(torch.cuda.get_device_capability(0))
    except Exception as fault:  # a driver that does not fit raises many kinds: none of them is this probe's to judge
        out["note"] = str(fault).splitlines()[0][:300]
if "triton" in out["packages"]:
    if "triton" not in out["versions"]:
        import triton
        out["versions"]["triton"] = triton.__version__
print("PROBE " + json.dumps(out))
"""


@dataclass(frozen=True, slots=True)
class Host:
    """One host. gpu: its first GPU's name, None without one; capability: CUDA's, None on AMD or without a GPU.

    versions: python, cuda, hip ("" where it does not apply), and of every package that says its own. packages:
    installed, by import name. features: what the running torch has ("F.rms_norm"), found by looking, not by version.
    note: why a probe failed.
    """

    gpu: str | None = None
    capability: tuple[int, int] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    packages: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    note: str = ""

    @property
    def arch(self) -> str | None:
        """`sm_90`, None without a CUDA GPU."""
        return None if self.capability is None else f"sm_{self.capability[0]}{self.capability[1]}"


_assumed: list[Host] = []
_looking = threading.Lock()


def assume(host: Host | None) -> None:
    """Take these facts for this process instead of looking, None for none: a child is told what its parent found.

    A child with a limit on its memory could not even look: what CUDA needs is not its own.
    """
    _assumed[:] = [] if host is None else [host]


def probe_host() -> Host:
    """Look at this host, once: a child process imports torch and asks for the GPU, so that CUDA never starts here.

    A probe that fails or takes longer than PROBE_TIMEOUT_S gives a Host without GPU and the reason in `note`.
    """
    if _assumed:
        return _assumed[0]
    with _looking:  # two that ask at once share one probe
        return _look()


@functools.lru_cache(maxsize=1)
def _look() -> Host:
    command = [sys.executable, "-c", _PROBE, json.dumps(PACKAGES)]
    theirs, ours = os.pipe()
    try:
        done = subprocess.run(
            command, stdin=theirs, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False,
            env=dict(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        return Host(note=f"the host could not be probed: {fault}"[:300])
    finally:
        os.close(theirs)
        os.close(ours)
    answer = next((line[6:] for line in done.stdout.splitlines() if line.startswith("PROBE ")), None)
    if answer is None:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return Host(note=f"the host could not be probed: {last}"[:300])
    facts = json.loads(answer)
    if facts["gpu"] and (version := driver()):
        facts["versions"]["driver"] = version
    return from_json(facts)


def driver(told: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The NVIDIA driver's version, "" without one."""
    try:
        words = told.read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")


class ProbedHost(TypedDict):
    """A Host as JSON has it."""

    gpu: str | None
    capability: list[int] | None
    versions: dict[str, str]
    packages: list[str]
    features: list[str]
    note: str


def to_json(host: Host) -> ProbedHost:
    """A Host as `from_json` reads it."""
    return {
        "gpu": host.gpu,
        "capability": None if host.capability is None else list(host.capability),
        "versions": dict(host.versions),
        "packages": sorted(host.packages),
        "features": sorted(host.features),
        "note": host.note,
    }


def from_json(data: Mapping[str, object]) -> Host:
    """A Host from the probe's answer."""
    capability = data.get("capability")
    return Host(
        gpu=str(data["gpu"]) if data.get("gpu") else None,
        capability=(int(capability[0]), int(capability[1])) if isinstance(capability, list) else None,
        versions={str(k): str(v) for k, v in dict(data.get("versions") or {}).items()},  # type: ignore[call-overload]
        packages=frozenset(map(str, data.get("packages") or ())),  # type: ignore[call-overload]
        features=frozenset(map(str, data.get("features") or ())),  # type: ignore[call-overload]
        note=str(data.get("note") or ""),
    )
