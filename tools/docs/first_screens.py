"""The first screens of ten traces and five regions as a reader meets them: `python tools/docs/first_screens.py FOLDER`.

Desktop and phone, light and dark: 60 pictures, of the first screen alone, named `CASE-WIDTH-SCHEME.png`. What was read
off them by whoever had not seen them before stands in docs/first-screens.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, running
from tests.browser.furnished import EXAMPLES, kept_region, upload
from tests.conftest import DATA
from tools.docs.screenshots import DESKTOP, PHONE, Shot, take

TRACES = {
    "t01": "handrolled_blocks_bf16_eager.json.gz",
    "t02": "llama_decode_bf16_eager.json.gz",
    "t03": "gpt2_train_autocast_eager.json.gz",
    "t04": "mixtral_prefill_bf16_eager.json.gz",
    "t05": "t5_train_autocast_eager.json.gz",
    "t06": "timm_convnext_train_channels_last.json.gz",
    "t07": "timm_resnet50_train_fp32.json.gz",
    "t08": "pyg_gcn_gat_train_fp32.json.gz",
    "t09": "kineto_docs_before_fix.json",
    "t10": "handrolled_blocks_bf16_compiled.json.gz",
}
"""Case -> the recorded trace."""

TEXTS = {
    "r1": (EXAMPLES / "rms_norm_by_hand.txt").read_text(encoding="utf-8"),
    "r2": (EXAMPLES / "attention_by_hand.txt").read_text(encoding="utf-8"),
    "r3": "a: bf16[8192, 4096]\nb: bf16[4096, 4096]\nreturn a @ b\n",
    "r4": (EXAMPLES / "swiglu.txt").read_text(encoding="utf-8"),
    "r5": "x: f32[4000000, 64]\ni: i64[4000000]\nout: f32[100000, 64]\nw: f32[4000000, 1]\n"
    "y = torch.index_add(out, 0, i, x * w)\nreturn y\n",
}
"""Case -> the region's text."""


def main() -> int:
    """Write the pictures into the folder that is named."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as base, sync_playwright() as driver:
        paths = {case: f"/traces/{upload(base, DATA / 'traces' / name)['id']}" for case, name in TRACES.items()}
        paths |= {case: kept_region(base, text) for case, text in TEXTS.items()}
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for case, path in paths.items():
            for size in (DESKTOP, PHONE):
                for scheme in ("light", "dark"):
                    picture = take(browser, base, path, Shot(case, case, scheme, size))
                    (target / f"{case}-{size[0]}-{scheme}.png").write_bytes(picture)
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
