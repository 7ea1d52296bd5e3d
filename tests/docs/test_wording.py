"""The pages say things in the field's words: no phrase that was replaced comes back on any of them."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.app.web.conftest import serving

RETIRED = (
    r"What is no region",
    r"hangs on",
    r"[Ff]ollowing all advice",
    r"of kernel time has its operation",
    r"Copies and sets alone",
    r"[Nn]othing runs",
    r"A colour is what to do",
    r"as high as the part",
    r"Kinds are told by",
    r"the library's already",
    r"[Tt]he function that holds it",
    r"\btorch\.compile (?:GEMM|RMSNorm|attention|SwiGLU|the elementwise chain)",
    r"does not compete",
    r"taken home|none to write|[Tt]ake the kernel home|[Tt]ake it home",
    r"lines to keep",
    r"The same (?:region|program)[^.:]{0,60}, measured (?:elsewhere|by this server):",
    r"times the fewest bytes",
    r"[Aa]sked of Inductor",
    r"Asked for, and today",
    r"Beside what one could do",
    r"regret is at most so much",
    r"had for nothing",
    r"when they stand",
    r"\(said so\)",
    r"All of it",
    r"has a twin",
    r"\d blocks? a processor",
    r"A(?:ttention|ttention and GELU tail written) by hand",
    r"on a processor at once",
)
"""Patterns of the phrases, as pages had them. A region's own name may hold "by hand": names are not pages' words, and
checks pair regions with a baseline's by them."""

EXAMPLES = {"trace": "handrolled_blocks", "region": "attention_by_hand", "gemm": "gemm_gelu_mask"}

SAID = {
    "/": ("View all", "Unfused attention"),
    "/accuracy": ("Targets and results", "Baselines", "Cumulative regret"),
    "/learn": ("autotuning over shapes is free", "Use torch.compile on GEMM"),
    "/api": ("is also available as",),
    "/history": ("Bottleneck: ", "Search names and devices"),
    "/checks": ("Check a trace",),
    "/device": ("GPUs the estimate knows",),
    "/compare": ("Compare",),
    "/sign-in": ("Sign in",),
    "/no-such-page": ("Look for it in the history",),
    "trace": (
        "Bottleneck:", "Estimated after all changes", "Kernels matched to operators", "Time outside kernels",
        "Exposed memcpy and memset", "GPU idle for", "Colour = advice", "height = share of time",
        "Grouped by kernel name; click to open", "Already cuBLAS",
    ),
    "region": ("excluded by rule", "lines to maintain", "ready-made kernel", "Measured on H200: agrees"),
    "gemm": ("x minimum traffic", "Wrap the enclosing function in torch.compile"),
    "widget": ("memory-bound (your input)",),
    "validation": ("Download kernel",),
}  # fmt: skip
"""Page -> some of what it says instead: without these an empty page would have no retired phrase either."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Each page of SAID, as text with its attributes and its charts' data."""
    with serving(tmp_path_factory.mktemp("wording"), budget_s=5) as server:
        client = server.client
        client.headers["Accept"] = "text/html"
        paths = {name: name for name in SAID if name.startswith("/")}
        paths |= {name: f"{opened(client, example)}?tab=all" for name, example in EXAMPLES.items()}
        paths["widget"] = "/?share_of_step=0.15&uniqueness=0.8&irregularity=0.5&bound=memory&kind=elementwise"
        record = re.search(r'href="(/validations/[^"/]+)"[^>]*>View all', client.get(paths["region"]).text)
        assert record is not None
        paths["validation"] = record[1]
        yield {name: html.unescape(client.get(path).text) for name, path in paths.items()}


def opened(client: httpx.Client, example: str) -> str:
    """The path of an example, once it is read."""
    path = str(client.post(f"/examples/{example}").headers["location"])
    deadline = time.monotonic() + 120
    while client.get(f"{path}.json").json().get("status") == "reading":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return path


@pytest.mark.parametrize("name", SAID)
def test_a_page_has_no_phrase_that_was_retired(pages: dict[str, str], name: str) -> None:
    found = {phrase: hit[0] for phrase in RETIRED if (hit := re.search(phrase, pages[name]))}
    # A record of the archive keeps the headlines of its day.
    if name == "validation":
        found = {p: h for p, h in found.items() if p not in HEADLINES_OF_RECORDS}
    assert found == {}


HEADLINES_OF_RECORDS = frozenset(p for p in RETIRED if "torch\\.compile" in p or "already" in p)


@pytest.mark.parametrize(("name", "phrase"), [(n, p) for n, phrases in SAID.items() for p in phrases])
def test_a_page_says_it_in_the_new_words(pages: dict[str, str], name: str, phrase: str) -> None:
    assert phrase in pages[name]
