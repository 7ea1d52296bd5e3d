"""What torch.compile would make of a region, in a real browser: kernels with source, PTX on request, traces too."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched, running
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

Open = Callable[..., Watched]

EXAMPLE = (ROOT / "app" / "examples" / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"
TAIL = "triton_poi_fused_add_gelu_mul_0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the oracle, in place of the session's; test_trace_oracle.py has one that asks behind a trace."""
    settings = {"TRITONWORTHY_ORACLE_TIMEOUT_S": "60", "TRITONWORTHY_ORACLE_SHARE": "0"}
    with running(tmp_path_factory.mktemp("oracle"), **settings) as base:
        yield base


def write_down(page: Page, text: str = EXAMPLE) -> None:
    """The page of a region with this text, with all of its tabs."""
    page.goto("/")
    page.fill("#text", text)
    page.select_option("#device", "NVIDIA H200")
    page.get_by_role("button", name="Advise").click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"), timeout=90_000)
    page.goto(f"{page.url}?tab=all")


def test_kernels_with_source_and_the_ptx_on_request(open_page: Open) -> None:
    page = open_page().page
    write_down(page)
    oracle = page.locator("#oracle")
    expect(oracle).to_contain_text("4 launches → 2")
    expect(oracle).to_contain_text("4 launches → 1")
    expect(oracle).to_contain_text("lines 6 to 8 of the text")
    kernel = page.locator("#k-default-1")
    kernel.get_by_text("Triton source").click()
    expect(kernel.locator("pre").first).to_contain_text("@triton.jit")
    expect(page.locator("#operations tr", has_text="gelu")).to_contain_text("kernel 1")
    expect(page.locator("#operations tr", has_text="matmul")).to_contain_text("library, mm")

    page.evaluate("window.stayed = true")
    kernel.get_by_role("link", name=re.compile("What the compiler decides")).click()
    machine = kernel.locator(".machine")
    expect(machine).to_contain_text("Registers a thread", timeout=60_000)
    expect(machine).to_contain_text("bits at a time")
    machine.locator("#ptx summary").click()
    expect(machine.locator("#ptx pre")).to_contain_text(f".entry {TAIL}")
    machine.locator("#sass summary").click()
    expect(machine.locator("#sass pre")).to_contain_text("EXIT")
    assert page.evaluate("window.stayed") is True
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_an_edited_text_has_its_own_kernels(open_page: Open) -> None:
    page = open_page().page
    write_down(page)
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", EXAMPLE.replace("z = gelu(z)", "z = relu(z)"))
    expect(page.locator("#oracle")).to_contain_text("triton_poi_fused_add_mul_relu_0")
    expect(page.locator("#oracle")).to_contain_text("Save the text as a region")
    with page.expect_response(re.compile("/regions/preview")):
        page.fill("#text", EXAMPLE)
    expect(page.locator("#k-default-1 a", has_text="What the compiler decides")).to_be_visible()


def test_a_traces_region_asks_by_itself(open_page: Open) -> None:
    page = open_page().page
    page.goto("/")
    page.set_input_files("#file", TRACE)
    page.wait_for_url(re.compile(r"/traces/[a-z0-9]{26}$"))
    page.locator("#region-list tbody th a", has_text="RMSNorm by hand").first.click()
    page.wait_for_url(re.compile(r"/regions/[a-z0-9]{26}$"))
    page.get_by_role("link", name="View all").click()
    expect(page.locator("#oracle")).to_contain_text("launches → 1", timeout=60_000)
    expect(page.locator("#operations")).to_contain_text("Compiled into")
    expect(page.locator("#criteria")).to_contain_text("Inductor's own kernels")
    expect(page.locator(".verdict")).to_be_visible()
    page.reload()
    expect(page.locator("#oracle")).to_contain_text("launches → 1")


def test_without_javascript_and_on_a_phone(open_page: Open, tmp_path: Path) -> None:
    page = open_page(java_script_enabled=False, viewport={"width": 390, "height": 844}).page
    page.goto("/")
    # Other bytes than those of the test before: the same would be the same trace, of which the oracle was asked.
    another = tmp_path / TRACE.name
    another.write_bytes(gzip.compress(gzip.decompress(TRACE.read_bytes()) + b"\n"))
    page.set_input_files("#file", another)
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(re.compile(r"/traces/"))
    page.locator("#region-list tbody th a", has_text="RMSNorm by hand").first.click(timeout=30_000)
    page.get_by_role("link", name="Compiler").click()
    page.get_by_role("button", name="Ask Inductor").click()
    page.wait_for_url(re.compile(r"#oracle$"), timeout=60_000)
    expect(page.locator("#oracle")).to_contain_text("launches → 1")
    page.locator("#k-default-1 summary").first.click()
    expect(page.locator("#k-default-1 pre").first).to_contain_text("@triton.jit")
    page.get_by_role("link", name=re.compile("What the compiler decides")).first.click()
    page.wait_for_url(re.compile(r"/kernels/default/triton_"), timeout=60_000)
    page.locator("#ptx summary").click()
    expect(page.locator("#ptx pre")).to_contain_text(".entry")


def test_the_machines_page_fits_a_phone_in_the_dark(open_page: Open) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, color_scheme="dark").page
    write_down(page)
    path = page.locator("#k-default-1").get_by_role("link", name=re.compile("decides")).get_attribute("href")
    assert path
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(path)
    expect(page.locator("h1")).to_contain_text(TAIL)
    for listing in page.locator("details").all():
        listing.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
