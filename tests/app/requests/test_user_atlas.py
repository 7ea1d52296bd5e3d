"""A running server goes by the user's atlas from the first question behind its coming, replacing or going."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.atlas.atlas import read, write
from app.atlas.shipped import SHIPPED
from tests.app.atlas.test_user_atlas import slower
from tests.app.web.conftest import Serving, serving

FILE = "nvidia-h200.json.gz"
REGION = "x: bf16[8192, 4096]\ny = gelu(x)\nreturn y\n"


def ask(web: Serving) -> tuple[float, list[str]]:
    """What the region takes as it runs now, in µs, and the advice's notes."""
    response = web.client.post("/api/v1/advice", json={"region": REGION, "device": "H200"})
    assert response.status_code == 200, response.text
    region: dict[str, Any] = response.json()
    advice = region.get("advice", region)
    times = next(a["time_us"] for a in advice["alternatives"] if a["tool"] == "skip")
    return float(times["mid"]), list(advice["notes"])


def test_answers_change_with_the_users_atlas_and_a_refused_one_is_named(tmp_path: Path) -> None:
    shipped = read(SHIPPED / FILE)
    place = tmp_path / "atlas" / FILE
    with serving(tmp_path) as web:
        before, notes = ask(web)
        assert not [note for note in notes if "atlas" in note]
        place.parent.mkdir()
        write(place, slower(shipped, 3.0))
        slow, _ = ask(web)
        assert slow > 1.5 * before
        write(place, slower(shipped, 6.0))
        assert ask(web)[0] > 1.3 * slow
        place.write_bytes(place.read_bytes()[:100])
        again, notes = ask(web)
        assert again == before
        assert [note for note in notes if note.startswith(f"Your atlas is refused: {FILE}")]
        place.unlink()
        assert ask(web) == (before, [note for note in notes if FILE not in note])
