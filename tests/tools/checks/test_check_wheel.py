"""Templates and static files are found where they stand: in the built package, or at the top of a checkout. That the
wheel works where it is installed is `make check-wheel`, which CI runs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from app.web.server import assets
from tests.conftest import ROOT
from tools.checks.check_wheel import WheelError, expected_in_sdist, expected_in_wheel, require, tracked_files


def test_in_a_checkout_they_are_those_at_the_top_of_the_tree() -> None:
    assert [assets.folder(name) for name in ("templates", "static")] == [ROOT / "templates", ROOT / "static"]


def test_in_a_built_package_they_are_those_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "site-packages" / "app" / "web"
    (built / "templates").mkdir(parents=True)
    (tmp_path / "site-packages" / "templates").mkdir()  # of some other package
    monkeypatch.setattr(assets, "WEB", built)
    assert assets.folder("templates") == built / "templates"


@pytest.mark.parametrize(
    ("tracked", "in_wheel"),
    [
        ("app/storage/migrations/script.py.mako", "app/storage/migrations/script.py.mako"),
        ("kernels/ops/matmul/gemm.py", "kernels/ops/matmul/gemm.py"),
        ("templates/partials/head.html", "app/web/templates/partials/head.html"),
        ("static/app.css", "app/web/static/app.css"),
        ("tests/conftest.py", None),
        ("tools/server.py", None),
    ],
)
def test_where_the_wheel_has_a_file(tracked: str, in_wheel: str | None) -> None:
    assert expected_in_wheel([tracked]) == ({in_wheel} if in_wheel else set())


def test_a_wheel_without_a_template_is_refused(tmp_path: Path) -> None:
    """By the list of what git tracks: nobody keeps a second list of the package's files."""
    expected = expected_in_wheel(tracked_files(ROOT))
    left_out = "app/web/templates/base.html"
    assert left_out in expected
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        for name in expected - {left_out}:
            wheel.writestr(name, "")
    with pytest.raises(WheelError, match=f"the wheel lacks 1 files: {left_out}"):
        require("the wheel", expected, set(zipfile.ZipFile(tmp_path / "some.whl").namelist()))


def test_the_sdist_is_asked_for_all_that_a_wheel_is_built_from() -> None:
    wanted = expected_in_sdist(tracked_files(ROOT))
    assert {"templates/base.html", "static/app.css", "setup.py", "constraints.txt", "LICENSE"} <= wanted
    assert not any(name.startswith("tests/") for name in wanted)
