"""What would break: operations lost or torn where the profiler's file is read in pieces, or written another way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profiler.program import events
from profiler.program.events import Span, read_spans


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events") / "events.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        for number in range(20):
            with record_function("outer\n  },\n  {"), record_function(f"round {number}"):
                torch.ones(3, 4, requires_grad=True).mul(2.0).sum().backward()
    recording.export_chrome_trace(str(path))
    return path


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def test_every_operation_is_read_with_its_arguments(written: Path) -> None:
    spans = read_spans(written)
    assert len(named(spans, "round 7")) == 1
    (outer, *_) = (s for s in spans if s.name.startswith("outer"))
    assert outer.duration_us >= named(spans, "round 0")[0].duration_us
    products = named(spans, "aten::mul")
    assert len(products) >= 20
    assert products[0].signature.dims[0] == [3, 4]
    assert products[0].signature.types[0] == "float"
    assert len({id(p.signature) for p in products}) < len(products) / 2  # kept once
    assert {s.sequence for s in products} != {-1}


@pytest.mark.parametrize("size_bytes", [300, 1000, 4096, 1_000_000])
def test_pieces_of_any_size_give_the_same(written: Path, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_spans(written)
    monkeypatch.setattr(events, "PIECE_BYTES", size_bytes)
    assert read_spans(written) == whole


@pytest.mark.parametrize(("indent", "colon"), [(None, ": "), (None, ":"), (1, ": "), (2, ": "), (4, ":")])
def test_another_layout_of_the_file_gives_the_same(
    written: Path, tmp_path: Path, indent: int | None, colon: str
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(written.read_bytes()), indent=indent, separators=(",", colon)))
    assert read_spans(other) == read_spans(written)


def test_a_span_of_the_programs_own_may_have_quotes_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        with record_function('layer "1" of C:\\models'):
            torch.ones(3)
        torch.ones(4).mul(2.0)
    recording.export_chrome_trace(str(path))
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(path.read_bytes())
    names = [span.name for span in read_spans(path)]
    assert "aten::mul" in names
    assert any(name.startswith("layer '1'") for name in names)
