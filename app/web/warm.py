"""What the first page would wait for, done behind the server's start: templates, charts, the archive's index, static
files compressed."""

from __future__ import annotations

import logging
import time

from app.background import Background
from app.requests.archived_evidence import recorded_regions
from app.requests.state import ServerState
from app.web.pages.examples import DEFAULT_REGION, examples
from app.web.server.assets import compress_all
from app.web.templating import environment

log = logging.getLogger("tritonworthy.pages")


class WarmPages(Background):
    """state: the server's. Nothing depends on it: a page that comes first does the same for itself."""

    def __init__(self, state: ServerState) -> None:
        super().__init__("warm-pages")
        self.state = state

    def serve(self) -> None:
        began = time.monotonic()
        try:
            recorded_regions(self.state, {examples()[DEFAULT_REGION].text: None})
            import plotly.graph_objects  # noqa: F401

            compress_all()

            for name in environment().list_templates():
                if self.stopping.is_set():
                    return
                environment().get_template(name)
        except Exception:
            log.exception("pages are not warm")
        log.info("pages are warm after %.1f s", time.monotonic() - began)
