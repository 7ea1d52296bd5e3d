"""What pyproject.toml cannot say: templates and static files stand at the top of the tree and ship inside app/web."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("static", "templates")


class BuildWithAssets(build_py):
    """The packages, and the folders that app.web.server.assets.folder finds in them. An editable install reads the
    tree."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in FOLDERS:
                target = Path(self.build_lib) / "app" / "web" / name
                shutil.rmtree(target, ignore_errors=True)  # of a build before this one
                shutil.copytree(name, target)


setup(cmdclass={"build_py": BuildWithAssets})
