"""A trace of 215 MB through the browser: `python benchmarks/server/upload.py [TRACE.json.gz]`.

A real server, a real Chromium. Printed: how the progress bar moved, the seconds from the last byte to the page with its
regions, the peak memory of the server's process and of each child. 1 where the page took longer than 10 s, the bar
stood still, or the server took more than 500 MB.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import psutil
from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.traces.repeated import LONG_BYTES, TRAINING, repeat
from profiler.child.process import descendants
from tests.browser.conftest import ARGUMENTS, running

PAGE_S, SERVER_MB, STEPS = 10.0, 500.0, 5

WATCH = """() => {
  const bar = document.querySelector("form[data-upload] progress");
  const state = document.querySelector("[data-upload-state]");
  const note = () => window.noted(bar.value / bar.max, state.textContent);
  new MutationObserver(note).observe(bar, { attributes: true });
  new MutationObserver(note).observe(state, { childList: true, characterData: true, subtree: true });
}"""


class Memory:
    """Peak resident MB of every process below one of ours, by what it runs, until `stop`."""

    def __init__(self, root: int) -> None:
        self.root, self.peaks, self.done = root, dict[str, float](), threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.done.wait(0.05):
            for pid in [self.root, *descendants(self.root)]:
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue  # it has ended
                peak = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
                name = " ".join(w.decode() for w in words[2:5]) or "?"
                self.peaks[name] = max(peak, self.peaks.get(name, 0.0))

    def stop(self) -> dict[str, float]:
        """Process -> peak MB, largest first."""
        self.done.set()
        self.thread.join()
        return dict(sorted(self.peaks.items(), key=lambda item: -item[1]))


def upload(page: Page, path: Path) -> tuple[list[tuple[float, float, str]], float]:
    """[(seconds, share sent, what the page says)], and the seconds from the last byte to the page with its regions."""
    moves: list[tuple[float, float, str]] = []
    started = time.monotonic()
    page.expose_function("noted", lambda share, said: moves.append((time.monotonic() - started, share, said)))
    page.goto("/")
    page.evaluate(WATCH)
    started = time.monotonic()
    page.set_input_files("#file", path)
    heading = page.get_by_role("heading", name="Regions, by what following the advice saves")
    expect(heading).to_be_visible(timeout=120_000)
    there = time.monotonic() - started
    sent = next((at for at, share, _ in moves if share >= 1), there)
    return moves, there - sent


def plain_trace(source: Path | None, folder: Path) -> Path:
    """The trace as plain JSON in this folder; without one T5 training, repeated to 215 MB."""
    if source is None:
        source = folder / "t5_training_repeated.json.gz"
        repeat(TRAINING, source, LONG_BYTES)
    plain = folder / source.name.removesuffix(".gz")
    with gzip.open(source) as packed, plain.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return plain


def server_pid(port: int) -> int:
    """The process of ours that serves there, by the command that started it."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("TRITONWORTHY_PORT") == str(port):
            return process.pid
    raise LookupError(f"no server on port {port}")


def main() -> int:
    """Print the figures; 1 where one misses its aim."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as base, sync_playwright() as driver:
        plain = plain_trace(source, Path(folder))
        memory = Memory(server_pid(int(base.rsplit(":", 1)[1])))
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        moves, waited_s = upload(browser.new_context(base_url=base).new_page(), plain)
        browser.close()
        peaks = memory.stop()
        print(f"{plain.name}: {plain.stat().st_size / 1e6:.0f} MB")
    steps = sorted({round(share, 2) for _, share, _ in moves if 0 < share < 1})
    print(f"progress: {len(steps)} steps between 0 and 1, {steps[:3]} to {steps[-3:]}")
    print(f"the page with its regions: {waited_s:.1f} s after the last byte (aim {PAGE_S:.0f} s)")
    for name, peak in peaks.items():
        print(f"{peak:7.0f} MB  {name}")
    server = next(peak for name, peak in peaks.items() if "serve" in name)
    print(f"the server's own process: {server:.0f} MB (aim {SERVER_MB:.0f} MB)")
    return int(waited_s > PAGE_S or len(steps) < STEPS or server > SERVER_MB)


if __name__ == "__main__":
    raise SystemExit(main())
