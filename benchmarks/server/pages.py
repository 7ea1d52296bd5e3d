"""How heavy and how fast pages are, in Chromium, against the commit before:
`python -m benchmarks.server.pages --base FOLDER [--rounds 10]`.

FOLDER is a checkout of the commit before (`git worktree add FOLDER COMMIT`); both servers run with this Python and this
browser. They are furnished alike (three traces, two regions) and take turns, page by page and upload by upload.

pages    each opened with nothing in the browser's cache: kilobytes over the wire, milliseconds until it is interactive
         (the end of its last script and of its last task over 50 ms, counted from the start of the navigation), words
         and height of what is shown, layout shift
upload   a 136-kernel trace chosen in the drop zone: from the choice until a frame is painted that shows the bottleneck
         and the step's time, until all advice is in place, layout shift in between
example  the same for a click on a bundled trace, which nobody has clicked before

The browser asks for the pages as a user's does and is told nothing of the two sides. Run it where nothing else runs.
Writes a record and the claims that it does not bear out; 1 where there is one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from benchmarks.server.checkout import Server, commit
from benchmarks.server.waits import SIDES, SMALL, TRACES, TRAINING, Sent, WaitError, ask, ask_json, poll
from tools.server import ROOT
from tools.stamp import stamp

Json: TypeAlias = dict[str, Any]

RECORD = ROOT / "tests" / "records" / "pages.json"
EXAMPLES = ROOT / "app" / "examples"
VERSIONS = ("fastapi", "uvicorn", "torch", "playwright")
ROUNDS = 10
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

UPLOADED = {
    "trace": SMALL,
    "trace-llama": TRACES / TRAINING,
    "trace-convnext": TRACES / "timm_convnext_train_channels_last.json.gz",
}
REGIONS = {"region-gemm": "gemm_gelu_mask.txt", "region-attention": "attention_by_hand.txt"}
PAGES = {"home": "/", "accuracy": "/accuracy", "learn": "/learn", "compare": "/compare"}

LIMITS_KB = {"home": 120.0} | dict.fromkeys((*UPLOADED, *REGIONS), 450.0)
INTERACTIVE_MS = 700.0
READABLE_MS = 1000.0
SHIFT = 0.05

QUIET_LOAD = 1.0
"""Most load average before the first round."""

SETTLE_MS = 400
"""A page that has asked for nothing and shifted nothing for so long is at rest."""

WAIT_MS = 60_000

# Before anything else of a page: what shifts, which tasks are long, and when a choice or a click began an upload. The
# browser excludes what follows an input within half a second; a file is chosen without one here, so all of it counts.
WATCH = """
(() => {
  window.measured = { shift: 0, long: 0, readable: 0, settled: 0 };
  const seen = (type, take) => new PerformanceObserver((list) => list.getEntries().forEach(take))
    .observe({ type, buffered: true });
  seen("layout-shift", (entry) => { if (!entry.hadRecentInput) window.measured.shift += entry.value; });
  const ends = (entry) => entry.startTime + entry.duration;
  seen("longtask", (entry) => { window.measured.long = Math.max(window.measured.long, ends(entry)); });
  const begin = () => sessionStorage.setItem("began", String(Date.now()));
  document.addEventListener("change", (event) => { if (event.target.matches("input[type=file]")) begin(); }, true);
  document.addEventListener("submit", (event) => { if (event.target.matches(".examples form")) begin(); }, true);
  if (!location.pathname.startsWith("/traces/")) return;
  const shown = (text) => /Bottleneck/.test(text) && /\\d\\s?(µs|ms|s)\\b/.test(text);
  const look = () => {
    const main = document.querySelector("main");
    if (!main) return;
    const now = Date.now() - Number(sessionStorage.getItem("began"));
    if (!window.measured.readable && shown(main.textContent)) {
      window.measured.readable = now;
      requestAnimationFrame(() => requestAnimationFrame(() => {
        window.measured.readable = Date.now() - Number(sessionStorage.getItem("began"));
      }));
    }
    const reads = document.querySelector("#reading-poll");
    if (window.measured.readable && !window.measured.settled && !reads) window.measured.settled = now;
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
  document.addEventListener("DOMContentLoaded", look);
})();
"""

SHOWN = """() => ({
  words: document.body.innerText.split(/\\s+/).filter(Boolean).length,
  height: document.documentElement.scrollHeight,
  shift: window.measured.shift,
  interactive: Math.max(window.measured.long, performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd),
})"""


@dataclass(frozen=True, slots=True)
class Side:
    """A furnished server. paths: of its pages by name."""

    name: str
    server: Server
    paths: Mapping[str, str]


# ----------------------------------------------------------------------------------------------------------- furnish


def furnish(server: Server) -> dict[str, str]:
    """What pages show -> its path, with the traces read and the regions kept."""
    paths = dict(PAGES)
    for name, file in UPLOADED.items():
        body = file.read_bytes()
        query = urlencode({"name": file.name})
        status, answer = ask(server.port, "POST", f"/api/v1/traces?{query}", body)
        if status != 201:
            raise WaitError(f"{file.name} was answered {status}: {answer[:300]!r}")
        trace_id = json.loads(answer)["id"]
        where = f"/api/v1/traces/{trace_id}"
        read = poll(partial(_look_at, server.port, where), _is_at_rest, 0.2)
        if read["status"] != "ready":
            raise WaitError(f"{file.name} ended {read['status']}")
        paths[name] = f"/traces/{trace_id}"
    for name, text in REGIONS.items():
        region = (EXAMPLES / text).read_text(encoding="utf-8")
        paths[name] = _kept_region(server.port, region)
    return paths


def _kept_region(port: int, text: str) -> str:
    """The page of a region that the start page's form keeps."""
    form = urlencode({"text": text, "share_percent": "12"}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/regions", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        answer.read()
    location = answer.getheader("Location")
    if answer.status != 303 or location is None:
        raise WaitError(f"a region was answered {answer.status}")
    return location


def _look_at(port: int, where: str) -> Json:
    return ask_json(port, "GET", where)[1]


def _is_at_rest(trace: Json) -> bool:
    """Read, and asked about all that is asked: nothing of an earlier page's work is timed with a later one."""
    oracle = trace.get("oracle")
    return trace["status"] != "reading" and (not oracle or oracle.get("done", True))


# ------------------------------------------------------------------------------------------------------------- pages


@contextmanager
def fresh(browser: Browser, server: Server) -> Iterator[Page]:
    """A page with an empty cache, watched."""
    context: BrowserContext = browser.new_context(base_url=server.url, viewport=VIEWPORT)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.add_init_script(WATCH)
    try:
        yield page
    finally:
        context.close()


def open_page(browser: Browser, server: Server, path: str) -> Json:
    """One page, once: kb, interactive_ms, words, height, shift."""
    with fresh(browser, server) as page:
        wire = _count_wire(page)
        page.goto(path)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(SETTLE_MS)
        shown = page.evaluate(SHOWN)
        return {
            "kb": wire() / 1e3, "interactive_ms": shown["interactive"], "words": shown["words"],
            "height_px": shown["height"], "shift": shown["shift"],
        }  # fmt: skip


def _count_wire(page: Page) -> Callable[[], float]:
    """Bytes that come over the wire from here on, heads and bodies as they are sent."""
    client = page.context.new_cdp_session(page)
    client.send("Network.enable")
    received: list[float] = []
    client.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    return lambda: sum(received)


def upload(browser: Browser, server: Server, number: int, folder: Path) -> Json:
    """A trace that nobody has sent, chosen on the start page: readable_ms, settled_ms, shift."""
    blocks, _ = Sent(SMALL, True).body(number)
    file = folder / f"step-{number}.json.gz"
    file.write_bytes(b"".join(blocks))
    with fresh(browser, server) as page:
        page.goto("/")
        page.wait_for_load_state("networkidle")
        page.set_input_files("#file", file)
        return _until_settled(page)


def click_example(browser: Browser, server: Server, place: int) -> Json:
    """A bundled trace, clicked on the start page. place: which of them."""
    with fresh(browser, server) as page:
        page.goto("/")
        page.wait_for_load_state("networkidle")
        page.locator(".examples button").nth(place).click()
        return _until_settled(page)


def _until_settled(page: Page) -> Json:
    page.wait_for_url("**/traces/*")
    # The page's content policy refuses Playwright's own way to wait, which evaluates text.
    poll(
        lambda: {"settled": page.evaluate("window.measured ? window.measured.settled : 0")},
        lambda seen: seen["settled"],
        0.1,
    )
    page.wait_for_timeout(SETTLE_MS)
    measured = page.evaluate("window.measured")
    return {"readable_ms": measured["readable"], "settled_ms": measured["settled"], "shift": measured["shift"]}


# ------------------------------------------------------------------------------------------------------------ record


def summary(rounds: list[Json]) -> Json:
    """name -> p50, least and most of every figure of the same thing measured again and again."""
    return {
        name: {
            "p50": _short(statistics.median(values)), "low": _short(min(values)), "high": _short(max(values)),
            "count": len(values),
        }
        for name in rounds[0]
        if (values := [one[name] for one in rounds])
    }  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def ratios(record: Json) -> dict[str, float]:
    """p50 of this checkout over that of the commit before, of all that is less when it is better."""
    before, here = (record[side] for side in SIDES)
    return {
        f"{thing}.{name}": round(figure["p50"] / before[thing][name]["p50"], 3)
        for thing, named in here.items()
        for name, figure in named.items()
        if name != "shift" and before[thing][name]["p50"]
    }


def failed_claims(record: Json) -> list[str]:
    """The claims that a record does not bear out, in words."""
    here, said = record["here"], []
    if record["rounds"] < ROUNDS:
        said.append(f"{record['rounds']} rounds, not {ROUNDS}")
    if record["load_at_start"] > QUIET_LOAD:
        said.append(f"measured at a load average of {record['load_at_start']}, not below {QUIET_LOAD:g}")
    if record["commits"]["here"]["changed"]:
        said.append("measured with changes that are not in a commit")
    for page, most in LIMITS_KB.items():
        said += _over(here, page, "kb", most)
    for page in (*PAGES, *UPLOADED, *REGIONS):
        said += _over(here, page, "interactive_ms", INTERACTIVE_MS)
        said += _over(here, page, "shift", SHIFT, "high")
    for begun in ("upload", "example"):
        said += _over(here, begun, "readable_ms", READABLE_MS)
        said += _over(here, begun, "shift", SHIFT, "high")
    return said


def _over(here: Json, thing: str, name: str, most: float, of: str = "p50") -> list[str]:
    if thing not in here:
        return [f"{thing} was not measured"]
    value = here[thing][name][of]
    return [f"{thing}: {name} {value}, not {most:g}"] if value > most else []


def table(record: Json) -> list[str]:
    """The record in lines: each figure's p50 before and here."""
    lines = [f"{'':16} {'':15} {'before':>10} {'here':>10} {'ratio':>7}"]
    for thing, named in record["here"].items():
        for name, figure in named.items():
            before, now = record["before"][thing][name]["p50"], figure["p50"]
            lines.append(f"{thing:16} {name:15} {before:10.4g} {now:10.4g} {now / before if before else 0.0:7.3f}")
    return lines


DOCS = ROOT / "docs" / "pages.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measured_part(record: Json) -> str:
    """What docs/pages.md says of a record, between BEGIN and END."""
    said = [
        f"{record['date']}, Chromium {record['chromium']}, {record['cores']} cores; "
        f"medians of {record['rounds']} rounds, the commit before -> now.",
        "",
        "| | KB | interactive, ms | words | height, px | shift |",
        "|-|-|-|-|-|-|",
    ]
    pages = ("kb", "interactive_ms", "words", "height_px", "shift")
    said += [_row(record, thing, pages) for thing in (*UPLOADED, *REGIONS, *PAGES)]
    said += ["", "| | readable, ms | all advice, ms | shift |", "|-|-|-|-|"]
    said += [_row(record, thing, ("readable_ms", "settled_ms", "shift")) for thing in ("upload", "example")]
    return "\n".join(said)


def _row(record: Json, thing: str, names: Sequence[str]) -> str:
    before, here = (record[side][thing] for side in SIDES)
    cells = [f"{_plain(before[name]['p50'])} -> {_plain(here[name]['p50'])}" for name in names]
    return f"| {thing} | {' | '.join(cells)} |"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_docs(record: Json) -> None:
    """Put a record's part in its place in docs/pages.md."""
    head, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCS.write_text(f"{head}{BEGIN}\n{measured_part(record)}\n{END}{tail}", encoding="utf-8")


def measure(sides: list[Side], browser: Browser, rounds: int, folder: Path) -> Json:
    """Every figure of both sides; who is first changes from round to round."""
    measured: dict[str, dict[str, list[Json]]] = {side.name: {} for side in sides}
    examples = 4
    for number in range(rounds):
        for name in sides[0].paths:
            for side in sides if number % 2 == 0 else reversed(sides):
                measured[side.name].setdefault(name, []).append(open_page(browser, side.server, side.paths[name]))
        for side in sides if number % 2 == 0 else reversed(sides):
            kept = measured[side.name]
            kept.setdefault("upload", []).append(upload(browser, side.server, number + 1, folder))
            if 0 < number < examples:  # the first bundled trace is what was uploaded when the server was furnished
                kept.setdefault("example", []).append(click_example(browser, side.server, number))
        print(f"round {number + 1}", flush=True)
    return {side: {name: summary(figures) for name, figures in measured[side].items()} for side in SIDES}


def main() -> int:
    """1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="checkout of the commit before")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"the record; {RECORD.name} of the tests goes into {DOCS.name} too",
    )
    args = parser.parse_args()
    load = os.getloadavg()[0]
    checkouts = dict(zip(SIDES, (args.base, ROOT), strict=True))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = []
        for name, checkout in checkouts.items():
            server = stack.enter_context(Server(checkout, folder / name, {}))
            server.start()
            server.warm()
            sides.append(Side(name, server, furnish(server)))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=args.chromium, args=ARGUMENTS)
        version = browser.version
        figures = measure(sides, browser, args.rounds, folder)
        browser.close()
    record: Json = {
        **stamp(VERSIONS),
        "chromium": version,
        "cores": len(os.sched_getaffinity(0)),
        "load_at_start": round(load, 2),
        "commits": {side: commit(checkout) for side, checkout in checkouts.items()},
        "rounds": args.rounds,
        **figures,
    }
    record["ratios"] = ratios(record)
    print("\n".join(table(record)))
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")
        if args.out.resolve() == RECORD:
            write_docs(record)
    for line in (said := failed_claims(record)):
        print(f"does not hold: {line}")
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
