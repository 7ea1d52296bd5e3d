"""The simulated fleet: its engine against queueing theory, its jobs counted, and its page against its record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tools.fleet import fleet_simulation
from tools.fleet.fleet_model import DAY_S, Fleet, Scenario, Store, Supply, arrival_times

FREE = Store("free", 1, 0, 0, 0, 0, 0, 0, 0)
SLOW = Store("slow", 1, 0.2, 0.2, 0.1, 0.1, 0.4, 2, 3)


def erlang_c(arrivals_per_s: float, service_s: float, servers: int) -> float:
    """Mean seconds in the queue of M/M/c: Erlang's C formula, by the stable recursion of Erlang B."""
    load = arrivals_per_s * service_s
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    waits = blocked / (1 - load / servers * (1 - blocked))
    return waits * service_s / (servers - load)


def plain(servers: int, load: float, lengths_s: Sequence[float] = (20.0,), jobs: int = 6000) -> Scenario:
    """One kind, nothing that fails, a store and a web that cost nothing: a textbook's queue."""
    mean = float(np.mean(lengths_s))
    rate = load * servers / mean
    return Scenario(
        supply=[Supply("a", servers, servers, 1, 1.0)], per_day=rate * DAY_S, lengths_s=lengths_s, store=FREE, web=1,
        web_s=0.0, lanes=servers, span_s=jobs / rate,
    )  # fmt: skip


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (3, 0.7), (8, 0.8)])
def test_the_mean_wait_is_erlang_s(servers: int, load: float) -> None:
    lengths = np.random.default_rng(7).exponential(20.0, 50_000)
    of = plain(servers, load, lengths, jobs=15_000)  # type: ignore[arg-type]
    waits = Fleet(of, 3).run().waits_s
    rate = of.per_day / DAY_S
    # The error of a mean over so many correlated waits.
    assert np.mean(waits) == pytest.approx(erlang_c(rate, float(lengths.mean()), servers), rel=0.12)


def test_erlang_c_is_the_textbook_s() -> None:
    # M/M/1 at load 0.5 waits rho / (1 - rho) services; M/M/2 at load 0.75 has C = 0.6428571.
    assert erlang_c(0.5, 1.0, 1) == pytest.approx(1.0)
    assert erlang_c(1.5, 1.0, 2) == pytest.approx(0.6428571 / 0.5)


def test_little_s_law_holds_for_what_waits() -> None:
    of = plain(4, 0.8, [5.0, 10.0, 45.0])
    out = Fleet(of, 1).run()
    waited = sum(out.waits_s)
    # Mean number waiting = arrivals a second x mean wait, as areas: the same to rounding.
    assert out.waiting_area_s == pytest.approx(waited, rel=1e-9)
    assert out.waiting_area_s / out.ended_s == pytest.approx(out.asked / out.ended_s * np.mean(out.waits_s), rel=1e-9)


ROUGH = replace(
    plain(4, 0.7, [5.0, 10.0, 45.0], jobs=2000), store=SLOW, web=1, web_s=0.5, lanes=3, mtbf_s=900.0, repair_s=60.0,
    burst_share=0.5, burst_size=40.0, swing=0.6, regions=500,
)  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"deduplicate": True}, {"cap": 20}, {"attempts": 1}])
def test_every_job_ends_once_whatever_fails(more: dict[str, float]) -> None:
    of = replace(ROUGH, **more)  # type: ignore[arg-type]
    out = Fleet(of, 5).run()
    assert out.ends.total() == out.asked > 1500
    assert out.ends["done"] == len(out.waits_s)
    assert out.lost > 0
    assert (out.ends["refused"] > 0) == math.isfinite(of.cap)
    assert (out.ends["same"] > 0) == of.deduplicate
    # Everything that ran was written, and nothing ran longer than its slots exist.
    assert out.store_busy_s >= out.ends["done"] * (SLOW.finish_s + SLOW.claim_s)
    assert sum(out.busy_slot_s.values()) <= 4 * out.ended_s
    assert out.measured_s <= sum(out.busy_slot_s.values())


def test_the_same_seed_gives_the_same_day_and_another_another() -> None:
    one, two, other = (Fleet(ROUGH, seed).run() for seed in (5, 5, 6))
    assert one == two
    assert one.waits_s != other.waits_s


def test_what_is_asked_has_the_rate_and_the_swing_that_were_asked_for() -> None:
    of = replace(ROUGH, per_day=100_000, span_s=DAY_S)
    times = arrival_times(of, np.random.default_rng(0))
    assert len(times) == pytest.approx(100_000, rel=0.05)
    first, second = np.histogram(times, [0, DAY_S / 2, DAY_S + of.burst_span_s])[0]
    # The sine's halves: 1 + 2 swing / pi against 1 - 2 swing / pi.
    assert first / second == pytest.approx((1 + 1.2 / math.pi) / (1 - 1.2 / math.pi), rel=0.1)


def test_a_part_named_as_the_limit_is_what_saturates() -> None:
    of = plain(2, 1.3, jobs=1500)
    out = Fleet(of, 1).run()
    assert sum(out.busy_slot_s.values()) / (2 * out.ended_s) > 0.97
    slow = replace(plain(50, 0.1, jobs=800), store=replace(SLOW, submit_s=5.0))
    out = Fleet(slow, 1).run()
    assert out.store_busy_s / out.ended_s > 0.95


def test_the_page_and_its_charts_are_those_of_the_record() -> None:
    record = json.loads(fleet_simulation.RECORD.read_text(encoding="utf-8"))
    assert fleet_simulation.PAGE.read_text(encoding="utf-8") == fleet_simulation.page(record)
    for name, svg in fleet_simulation.charts(record).items():
        assert (fleet_simulation.PAGE.parent / name).read_text(encoding="utf-8") == svg
    assert record["measured"] == json.loads(json.dumps(fleet_simulation.load_measurements()))
    rows = {row["name"]: row for row in record["rows"]}
    assert all(sum(row["ends"].values()) == row["asked"] for row in rows.values())
    assert rows["1,000 GPUs"]["asked"] == pytest.approx(200_000, rel=0.05)
    assert record["bottlenecks"] == json.loads(json.dumps(fleet_simulation.bottlenecks(record["measured"])))
