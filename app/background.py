"""A thread next to those of the requests, from the server's start to its end."""

from __future__ import annotations

import threading

STOP_S = 10.0


class Background:
    """start() and stop() once. `serve` returns soon after `stopping` is set."""

    def __init__(self, name: str) -> None:
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.serve, name=name, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        if self.thread.is_alive():
            self.thread.join(timeout=STOP_S)

    def serve(self) -> None:
        """What the thread does."""
        raise NotImplementedError
