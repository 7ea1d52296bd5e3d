"""torch.cuda where there is no GPU: one seems to be there, and where the host waits for it is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from profiler.program.recorder import Recorder

SYNCHRONIZED = "cudaDeviceSynchronize"
"""The call as which a wait for the whole GPU is recorded: CUDA's own name, with which it is in a trace."""
ELAPSED_MS = 1.0
"""Between any two events."""


def cuda_of(capability: int, recorder: Recorder) -> Mapping[str, object]:
    """Names of torch.cuda with what stands for them on a GPU of that compute capability.

    There is one stream: others are taken for it, and events are for waiting alone.
    """

    def wait(*_: object) -> None:
        recorder.note_wait(SYNCHRONIZED)

    class Event:
        """Of the one stream."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def record(self, *_: object) -> None:
            pass

        def wait(self, *_: object) -> None:
            pass

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            wait()

        def elapsed_time(self, _: object) -> float:
            recorder.gap(f"time between two events is read; assumed {ELAPSED_MS} ms")
            return ELAPSED_MS

    class Stream:
        """The one that there is."""

        device_index = 0
        cuda_stream = 0

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def synchronize(self) -> None:
            wait()

        def query(self) -> bool:
            return True

        def wait_stream(self, _: object) -> None:
            pass

        def wait_event(self, _: object) -> None:
            pass

        def record_event(self, event: object = None) -> object:
            return event or Event()

    stream = Stream()
    return {
        "is_available": lambda: True,
        "_lazy_init": lambda: None,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "synchronize": wait,
        "empty_cache": lambda: None,
        "get_device_capability": lambda *_: (capability, 0),
        "is_bf16_supported": lambda *_: True,
        "manual_seed": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "Event": Event,
        "Stream": Stream,
        "stream": lambda *_: nullcontext(),
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
    }
