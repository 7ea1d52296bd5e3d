"""How long advice takes, warm: a region of 20 operations from text to cost and advice, without and with the oracle.

    python -m benchmarks.server.advice [--rounds 20]

Prints medians. Asked for: 30 ms without, 300 ms with, the first call under 6 s and off the request's own thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

STEPS = (
    "h = h * 1.01 + r", "h = gelu(h)", "h = h - h.mean(-1, keepdim=True)", "h = silu(h) * g", "h = softmax(h, -1)",
    "h = h + x", "h = h * 0.5",
)  # fmt: skip


def text(variant: int) -> str:
    """A region of at least 20 operations; variants differ in one number, so that no answer is found in a cache."""
    inputs = "x: bf16[4096, 4096]\nr: bf16[4096, 4096]\ng: bf16[4096]\n"
    body = "\n".join(STEPS + STEPS)
    return f"{inputs}h = x * {1 + variant / 1000}\n{body}\nreturn h\n"


def long_text(variant: int) -> str:
    """A loop of 1,000 steps: as long as regions get."""
    return f"x: bf16[4096, 4096]\nh = x\nfor i in range(1000):\n    h = h + {1 + variant / 1000}\nreturn h\n"


def median_ms(work: Callable[[int], object], rounds: int) -> tuple[float, float]:
    """Median and largest of `rounds` runs, in milliseconds."""
    times = []
    for variant in range(rounds):
        started = time.perf_counter()
        work(variant)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times), max(times)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds

    from app.jobs import worker_identity
    from app.main import make_templates
    from app.requests.executor import Executor
    from app.settings import Settings
    from profiler.child.process import FORK
    from profiler.oracle.process import Oracle

    started = time.perf_counter()
    template = make_templates(worker_identity.owner())[FORK]
    oracle = Oracle(template=template)
    executor = Executor(template, limits=Settings().advice_limits, oracle=oracle, oracle_timeout_s=60.0)
    executor.start()
    try:
        region = executor.advise_region(text(999))
        operations = sum(int(o["launches"]) for o in (region["cost"] or {"operations": []})["operations"])
        print(f"first call, nothing imported   {time.perf_counter() - started:8.2f} s   {operations} operations")
        for name, asked in (("without the oracle", False), ("with the oracle", True)):

            def work(variant: int, asked: bool = asked) -> object:
                return executor.advise_region(text(variant), oracle=asked)

            median, most = median_ms(work, rounds)
            print(f"{name:<30} {median:8.1f} ms   largest {most:.1f} ms of {rounds}")
        median, most = median_ms(lambda variant: executor.advise_region(long_text(variant), oracle=False), 3)
        print(f"{'a loop of 1,000 steps':<30} {median:8.1f} ms   largest {most:.1f} ms of 3")
    finally:
        executor.stop()
        template.stop()


if __name__ == "__main__":
    main()
