"""The pictures of docs/screenshots, taken again: `python tools/docs/screenshots.py [NAME ...]`.

A real server with a recorded trace, regions and the archive's validations; Chromium, light and dark, desktop and
phone. Each is written with at most 256 colours, which these pages hardly exceed, so that it stays small.
"""

from __future__ import annotations

import base64
import shutil
import struct
import sys
import tempfile
import urllib.parse
import zlib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, running
from tests.browser.furnished import furnish
from tests.conftest import DATA, ROOT

FOLDER = ROOT / "docs" / "screenshots"
DESKTOP, PHONE = (1280, 800), (390, 844)

PIXELS = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return [image.width, image.height, btoa(text)];
}"""


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture. page: a name of tests.browser.furnished; tab: the one that is open; at: what stands at its top, ""
    for the page's top.
    """

    name: str
    page: str
    scheme: str = "light"
    size: tuple[int, int] = DESKTOP
    tab: str = ""
    at: str = ""
    wait_for: str = ""


SHOTS = (
    Shot("home", "widget"),
    Shot("trace", "trace"),
    Shot("trace-parts", "trace", tab="regions", at="#trace-tabs"),
    Shot("region", "recorded region"),
    Shot("region-dark", "recorded region", scheme="dark", tab="evidence", at="#record"),
    Shot("traffic", "recorded region", tab="cost", at="#traffic"),
    Shot("code", "recorded region", scheme="dark", tab="kernels", at="#code", wait_for="#columns pre >> nth=2"),
    Shot("validation", "validation"),
    Shot("learn", "learn", at="#rule"),
    Shot("compare-dark", "compare traces", scheme="dark"),
    Shot("phone-trace", "trace", size=PHONE),
    Shot("phone-region-dark", "recorded region", scheme="dark", size=PHONE),
)


def address(path: str, shot: Shot) -> str:
    """Where the picture is taken; an address that points into the page begins there, so that it is left out."""
    parts = urllib.parse.urlsplit(path)
    asked = [(name, value) for name, value in urllib.parse.parse_qsl(parts.query) if name != "tab"]
    if shot.tab:
        asked.append(("tab", shot.tab))
    return urllib.parse.urlunsplit(("", "", parts.path, urllib.parse.urlencode(asked), ""))


def take(browser: Browser, base: str, path: str, shot: Shot) -> bytes:
    """The picture as Chromium's PNG."""
    width, height = shot.size
    context = browser.new_context(
        base_url=base, color_scheme=shot.scheme, viewport={"width": width, "height": height}  # type: ignore[arg-type]
    )  # fmt: skip
    page = context.new_page()
    page.goto(address(path, shot))
    page.wait_for_load_state("networkidle")
    if shot.wait_for:
        page.locator(shot.wait_for).wait_for(timeout=60_000)
    if shot.at:
        place = page.locator(shot.at).first
        place.evaluate("(e) => e.scrollIntoView({ block: 'start', behavior: 'instant' })")  # below what stays in view
    page.wait_for_timeout(400)  # charts are drawn after the load
    picture = page.screenshot()
    context.close()
    return picture


def pixels(page: Page, picture: bytes) -> np.ndarray:
    """uint8[height, width, 3] of a PNG, read by the browser."""
    width, height, text = page.evaluate(PIXELS, f"data:image/png;base64,{base64.b64encode(picture).decode()}")
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(height, width, 4)[..., :3]


def palette(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint8[colours, 3], uint8[height, width] of places in it): the most frequent colours, others by the nearest."""
    packed = image.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    channels = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int32)
    kept: list[int] = []
    for place in np.argsort(-counts):
        # A shade that one in the palette stands for already, within 3 of 255, needs no place of its own.
        if not kept or np.abs(channels[kept] - channels[place]).max(axis=1).min() > 3:
            kept.append(int(place))
        if len(kept) == 256:
            break
    table = channels[kept]
    nearest = np.array([np.abs(table - c).sum(axis=1).argmin() for c in channels], np.uint8)
    return table.astype(np.uint8), nearest[places.reshape(packed.shape)]


def png(image: np.ndarray) -> bytes:
    """An indexed PNG."""
    table, rows = palette(image)
    height, width = rows.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", table.tobytes()),
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def main() -> int:
    """Take those that are named, or all."""
    wanted = [s for s in SHOTS if not sys.argv[1:] or s.name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as base, sync_playwright() as driver:
        paths = furnish(base, DATA)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        reader = browser.new_page()
        for shot in wanted:
            picture = png(pixels(reader, take(browser, base, paths[shot.page], shot)))
            (FOLDER / f"{shot.name}.png").write_bytes(picture)
            print(f"{shot.name}: {len(picture) / 1e3:.0f} kB")
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
