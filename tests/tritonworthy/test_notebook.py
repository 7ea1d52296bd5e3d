"""A notebook without a screen: its cells run in a kernel of their own, and what the last line of each shows is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.trace_report.actions.listed import with_alternatives
from tests.app.web.conftest import serving
from tests.conftest import DATA, ROOT
from tests.libraries import library
from tritonworthy.ask import read_trace
from tritonworthy.notebook import MOST_ACTIONS

nbclient = library("nbclient")
nbformat = library("nbformat")
library("ipykernel")

TRACE = DATA / "traces" / "gpt2_train_autocast_eager_stack.json.gz"
RECORD = """
import torch, tritonworthy
model = torch.nn.Linear(64, 64)
with tritonworthy.capture("step.json.gz", skip=0) as capture:
    for _ in range(capture.steps_wanted):
        model(torch.randn(32, 64)).sum().backward()
        capture.step()
capture
"""
HAND_OVER = """
from pathlib import Path
from tritonworthy.handover import upload
from tritonworthy.recording import Recording
path = Path({path!r})
upload({url!r}, Recording(path, path, None, None, None, 1e3, None, True), None).report()
"""


def shown(tmp_path: Path, cells: list[str]) -> list[str]:
    """The HTML that each cell shows."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    results = [
        [o["data"]["text/html"] for o in cell["outputs"] if o["output_type"] == "execute_result"]
        for cell in notebook["cells"]
    ]
    assert [len(result) for result in results] == [1] * len(cells)
    return [result[0] for result in results]


def test_cells_show_the_bottleneck_three_things_to_do_and_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with serving(tmp_path / "server") as server:
        recorded, handed_over = shown(tmp_path, [RECORD, HAND_OVER.format(path=str(TRACE), url=server.url)])
        stored = server.client.get("/api/v1/traces").json()["items"]
    if not torch.cuda.is_available():
        assert "no GPU here" in recorded
    body = read_trace(TRACE).body
    titles = [action["title"] for action, _ in with_alternatives(body["actions"])]
    assert handed_over.count("<li>") == MOST_ACTIONS == 3
    assert "Bottleneck: " in handed_over and body["critical"]["because"][:20] in handed_over
    places = [handed_over.index(title) for title in titles[:MOST_ACTIONS]]
    assert places == sorted(places)
    assert f'href="{server.url}/traces/{stored[0]["id"]}"' in handed_over
    assert "<script" not in handed_over
