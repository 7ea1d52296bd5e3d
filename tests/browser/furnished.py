"""A server with something on every page: a real trace, regions, a validation recorded on an H200, a comparison."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from app.archive import record_store
from tests.conftest import ROOT
from tools.checks.check_api import sample_runs

EXAMPLES = ROOT / "app" / "examples"
RMS_NORM = (EXAMPLES / "rms_norm_by_hand.txt").read_text(encoding="utf-8")
TRACE = "handrolled_blocks_bf16_eager_stack.json.gz"
TWO_STEPS = ("handrolled_blocks_bf16_eager.json.gz", "handrolled_blocks_bf16_compiled.json.gz")


def answer(url: str, body: bytes | None = None, content_type: str = "application/json") -> Any:
    """GET, or POST of a body, as JSON."""
    request = urllib.request.Request(url, body, {"Content-Type": content_type} if body is not None else {})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def upload(base: str, path: Path) -> dict[str, Any]:
    """The trace once it is read."""
    name = urllib.parse.quote(path.name)
    reply: dict[str, Any] = answer(
        f"{base}/api/v1/traces?wait=60&name={name}", path.read_bytes(), "application/octet-stream"
    )
    assert reply["status"] == "ready", reply
    return reply


def kept_region(base: str, text: str) -> str:
    """The path of a region that the form keeps."""
    body = urllib.parse.urlencode({"text": text, "share_percent": "12"}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{base}/regions", body), timeout=120) as response:
        return str(urllib.parse.urlsplit(response.url).path)


def furnish(base: str, data: Path) -> dict[str, str]:
    """What a page shows -> its path, on a server that holds the traces, the regions and the archive."""
    trace, before, after = (upload(base, data / "traces" / name) for name in (TRACE, *TWO_STEPS))
    seen = next(r for r in trace["regions"] if re.search("RMSNorm", r["name"]) and r["text"])
    example = kept_region(base, RMS_NORM)
    answer(f"{base}/api/v1/history", json.dumps({"entries": sample_runs()}).encode())
    series = answer(f"{base}/api/v1/history")["items"][0]["id"]
    record, alike = [r for r in record_store.records() if r["name"] == "GEMM with GELU and mask tail"][:2]
    return {
        "home": "/",
        "widget": "/?share_of_step=0.3&uniqueness=0.9&irregularity=0.8&bound=memory&kind=custom#widget",
        "trace": f"/traces/{trace['id']}",
        "perfetto": f"/traces/{trace['id']}/perfetto",
        "region of a trace": f"/regions/{seen['id']}",
        "region": example,
        "region, all tabs": f"{example}?tab=all",
        "recorded region": f"{kept_region(base, record['region'])}?tab=evidence",
        "columns": f"{example}/triton",
        "machine": f"{example}/triton/machine",
        "devices": f"{example}/devices?device=NVIDIA%20A100",
        "carried region": "/region?" + urllib.parse.urlencode({"text": RMS_NORM, "share_percent": "12"}),
        "validation": f"/validations/{record['id']}",
        "kit": f"/validations/{record['id']}/kit",
        "landscape": f"/validations/{record['id']}/landscape",
        "compare": "/compare",
        "compare traces": f"/compare?a={before['id']}&b={after['id']}",
        "compare validations": f"/compare?a={record['id']}&b={alike['id']}",
        "history": "/history",
        "history of checks": "/checks/history",
        "series of checks": f"/checks/history/{series}",
        "device": "/device",
        "accuracy": "/accuracy",
        "learn": "/learn",
        "learn of a region": f"/learn?region={seen['id']}#rule",
        "decided": "/learn/decided",
        "api": "/api",
        "sign in": "/sign-in",
        "no page": "/no-such-page",
    }
