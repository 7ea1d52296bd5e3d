"""A stored region is advised on again with what its advice was issued on: after the oracle, and for any device.

The children's own code answers here, in this process; what the oracle says is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from app.analysis import answering, reissue, service
from app.analysis.advice_inputs import AdviceInputs, to_stored
from app.analysis.analyze import NO_COMPILE_PREDICTION, CompilePrediction, decide
from app.analysis.questions import DecidedRegion, DecideRequest, DeviceRequest, DevicesRequest, Question
from app.requests import regions
from app.storage import job_table, migrations
from app.storage.database import make_engine, new_id
from app.storage.store import Store, finite
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.report import Whole, stages
from kernels.measure.model import to_json
from profiler.hardware import DEVICES
from profiler.oracle.model import OracleKernel, Prediction
from profiler.region.model import Binding, Workload
from tests.conftest import DATA

TEXT = "x: bf16[8192, 4096]\nb: bf16[4096]\ny = gelu(x + b) * 2\nreturn y\n"
H200 = "NVIDIA H200"
FUSED = CompilePrediction(
    (
        Prediction(
            H200,
            "default",
            {},
            False,
            kernels=(OracleKernel("triton_poi_fused_0", "pointwise", 1, 2**27, (), "source"),),
        ),
    )
)
TRACE = "handrolled_blocks_bf16_eager_stack.json.gz"


@dataclass
class Answering:
    """The server's service, answered in this process by the code of its children."""

    prediction: CompilePrediction = FUSED
    oracle: object = True
    decided: list[CompilePrediction] = field(default_factory=list)
    thresholds: Thresholds = DEFAULTS

    def predict_compile(self, question: Question) -> CompilePrediction:
        return self.prediction

    def decide(self, question: Question, prediction: CompilePrediction = NO_COMPILE_PREDICTION) -> DecidedRegion:
        self.decided.append(prediction)
        return answering.answer(DecideRequest.with_oracle(question, prediction), self.thresholds)  # type: ignore[return-value]

    def decide_text(self, text: str, **workload: Any) -> DecidedRegion:
        return self.decide(Question(text, workload))

    def on_device(self, question: Question, name: str, *, title: str = "") -> Any:
        return answering.answer(DeviceRequest(question, name, title), DEFAULTS)

    def on_devices(self, question: Question, advice: Any = None) -> Any:
        return answering.answer(DevicesRequest(question, advice), DEFAULTS)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Any]:
    store = Store(f"sqlite:///{tmp_path}/store.db")
    settings = SimpleNamespace(max_region_chars=10_000, max_shapes=64)
    yield SimpleNamespace(store=store, service=Answering(), settings=settings)
    store.close()


def put_trace(store: Store, trace: dict[str, Any]) -> dict[str, Any]:
    trace_id = new_id()
    store.add_trace(trace_id=trace_id, name="t", sha256="s", size=1, file=trace_id, request={}, cap=9)
    with store.database.write() as connection:
        job = job_table.claim(connection, kind="read", owner="o", lease_s=60)
    assert job is not None
    assert store.finish_read(job_id=trace_id, owner="o", attempt=job["attempt"], trace=trace)
    found = store.trace(trace_id)
    assert found is not None
    return found


@cache
def read(what_if: str | None = None) -> Whole:
    (whole,) = (s for s in stages(DATA / "traces" / TRACE, TRACE, what_if=what_if) if isinstance(s, Whole))
    return whole


def stored_trace(store: Store, what_if: str | None = None) -> tuple[dict[str, Any], dict[str, AdviceInputs]]:
    """The trace as it is stored, and what was kept with each of its regions, by its id."""
    whole = read(what_if)
    trace = put_trace(store, {**whole.trace, "advice_inputs": [to_stored(i) for i in whole.inputs]})
    return trace, {r["id"]: i for r, i in zip(trace["regions"], whole.inputs, strict=True)}


def advised(text: str, inputs: AdviceInputs, prediction: CompilePrediction = NO_COMPILE_PREDICTION) -> Any:
    """The advice by the rule itself."""
    return finite(to_json(decide(service.prepare_from_inputs(text, inputs), prediction).advice))


def forget_inputs(store: Store, region_id: str) -> None:
    """As the version before stored it."""
    with store.database.write() as connection:
        connection.execute(sa.text("UPDATE regions SET inputs = NULL WHERE id = :id"), {"id": region_id})


def holds(region: dict[str, Any], name: str) -> bool | None:
    found: bool | None = next(c for c in region["advice"]["criteria"] if c["name"] == name)["holds"]
    return found


UNAVAILABLE = CompilePrediction((Prediction(H200, "default", {}, False, unavailable="it took longer than 20 s"),))


def test_why_inductors_kernels_are_not_gone_by_is_kept_when_it_was_asked_in_vain(state: Any) -> None:
    region = regions.submit_region(state, TEXT, device="H200")
    assert region["rests_on"]["prediction_because"] == "Inductor was not asked"
    state.service.prediction = UNAVAILABLE
    asked = regions.predict_region(state, region["id"])
    assert asked["advice"] == region["advice"]
    assert asked["rests_on"]["prediction_because"] == "Inductor could not answer: it took longer than 20 s"


def test_what_predictions_rest_on_goes_with_the_device_that_is_asked_about(state: Any) -> None:
    region = regions.submit_region(state, TEXT, device="H200")
    there = regions.region_on(state, region["id"], "A100")
    assert (region["rests_on"]["device"], there["rests_on"]["device"]) == (H200, "NVIDIA A100")
    assert region["rests_on"]["atlas"]["own"] and not there["rests_on"]["atlas"]["own"]


def test_of_a_region_whose_inputs_are_lost_what_its_advice_rests_on_stays(state: Any) -> None:
    """As its advice does, which cannot be issued again."""
    region = regions.submit_region(state, TEXT, step_time_us=900.0, target_step_time_us=1000.0, device="H200")
    forget_inputs(state.store, region["id"])
    asked = regions.predict_region(state, region["id"])
    assert asked["advice"]["tool"] == "skip" and asked["oracle"]
    assert asked["rests_on"] == region["rests_on"]


def test_the_oracles_answer_does_not_forget_the_target_that_a_user_gave(state: Any) -> None:
    """The step meets its target: that is no longer to be seen in the stored region."""
    region = regions.submit_region(state, TEXT, step_time_us=900.0, target_step_time_us=1000.0, device="H200")
    assert (region["advice"]["tool"], holds(region, "fast-enough")) == ("skip", True)
    again = regions.predict_region(state, region["id"])
    assert (again["advice"]["tool"], holds(again, "fast-enough")) == ("skip", True)
    assert [p["mode"] for p in again["oracle"]] == ["default"]
    other = regions.region_on(state, region["id"], "NVIDIA L4")
    assert (other["advice"]["device"], holds(other, "fast-enough")) == ("NVIDIA L4", True)
    assert {row["tool"] for row in regions.region_on_devices(state, region["id"])} == {"skip"}


def test_the_objective_stays_when_the_oracle_has_answered(state: Any) -> None:
    region = regions.submit_region(state, TEXT, objective="memory", share_of_step=0.3, device="H200")
    inputs = AdviceInputs(H200, Workload((Binding(),), share_of_step=0.3), objective="memory")
    assert region["advice"] == advised(TEXT, inputs)
    again = regions.predict_region(state, region["id"])
    assert again["advice"] == advised(TEXT, inputs, FUSED)
    assert again["advice"] != advised(TEXT, AdviceInputs(H200, inputs.workload), FUSED)


@pytest.mark.parametrize("what_if", [None, "L40S"])
def test_a_traces_region_is_advised_again_on_all_that_its_trace_saw(state: Any, what_if: str | None) -> None:
    """On its own device word for word as it stands, and after the oracle as the rule says on the same inputs."""
    trace, inputs = stored_trace(state.store, what_if)
    checked = [r for r in trace["regions"] if r["text"]][:6]
    assert checked
    for region in checked:
        device = region["advice"]["device"]
        assert regions.region_on(state, region["id"], device)["advice"] == region["advice"]
        again = regions.predict_region(state, region["id"])
        assert again["advice"] == advised(region["text"], inputs[region["id"]], FUSED)


def test_advice_stays_where_the_server_that_asks_would_say_something_else(state: Any) -> None:
    """Other packages, other thresholds: the oracle's answer is kept, and no library or tool is lost for it."""
    trace, _ = stored_trace(state.store)
    region = next(r for r in trace["regions"] if r["text"] and r["advice"]["tool"] != "skip")
    state.service.thresholds = replace(DEFAULTS, worth_share=0.99)
    again = regions.predict_region(state, region["id"])
    assert [p["mode"] for p in again["oracle"]] == ["default"]
    assert (again["advice"]["tool"], again["advice"]["mode"]) == (region["advice"]["tool"], region["advice"]["mode"])


def test_what_an_advice_was_issued_on_is_in_no_answer(state: Any) -> None:
    trace, _ = stored_trace(state.store)
    written = regions.submit_region(state, TEXT, share_of_step=0.3)
    listed = state.store.region_list()["items"]
    head = state.store.trace_head(trace["id"])
    for shown in (trace, *trace["regions"], written, *listed, head, state.store.region_as_advised(written["id"])):
        assert not {"inputs", "advice_inputs"} & shown.keys()


def test_regions_shown_while_a_trace_is_read_keep_their_inputs(state: Any) -> None:
    store, whole = state.store, read()
    trace_id = new_id()
    store.add_trace(trace_id=trace_id, name="t", sha256="s", size=1, file=trace_id, request={}, cap=9)
    with store.database.write() as connection:
        job = job_table.claim(connection, kind="read", owner="o", lease_s=60)
    key = {"job_id": trace_id, "owner": "o", "attempt": job["attempt"]}
    kept = [to_stored(i) for i in whole.inputs]
    bare = [{**r, "advice": None} for r in whole.trace["regions"]]
    assert store.put_parts(**key, trace={**whole.trace, "regions": bare, "advice_inputs": kept})
    assert store.put_regions(**key, regions={0: whole.trace["regions"][0]})
    assert store.finish_read(**key, trace={**whole.trace, "advice_inputs": kept})
    ids = [r["id"] for r in store.regions(trace_id)]
    assert [store.advice_inputs(i) for i in ids] == finite(kept)
    assert store.advice_inputs("no id") is None
    assert store.advice_inputs("a" * 26) is None


def test_an_old_rows_advice_stays_where_its_inputs_cannot_be_read_back(state: Any) -> None:
    region = regions.submit_region(state, TEXT, step_time_us=900.0, target_step_time_us=1000.0, device="H200")
    forget_inputs(state.store, region["id"])
    again = regions.predict_region(state, region["id"])
    kept = {k: v for k, v in again["advice"].items() if k != "criteria"}
    assert kept == {k: v for k, v in region["advice"].items() if k != "criteria"}
    assert NO_COMPILE_PREDICTION in state.service.decided, "it was compared with the advice that stands"


def test_a_database_of_before_the_inputs_answers_as_it_did(tmp_path: Path) -> None:
    """Rows that schema 0004 holds: read back, they give the advice that stands, and the oracle's answer is taken in."""
    url = f"sqlite:///{tmp_path}/old.db"
    whole = read()
    place = next(i for i, r in enumerate(whole.trace["regions"]) if r["text"] and not r["assumed"])
    made = Store(url)
    region_id = put_trace(made, whole.trace)["regions"][place]["id"]
    made.close()
    engine = make_engine(url)
    with engine.connect().execution_options(tritonworthy_write=True) as connection, connection.begin():
        connection.exec_driver_sql("ALTER TABLE regions DROP COLUMN inputs")
        for later in ("links", "trash", "history_values", "history_series", "history_runs"):
            connection.exec_driver_sql(f"DROP TABLE {later}")
        config = Config()
        config.set_main_option("script_location", str(migrations.FOLDER))
        config.attributes["connection"] = connection
        command.stamp(config, "0004")
    engine.dispose()
    store = Store(url)
    state: Any = SimpleNamespace(store=store, service=Answering())
    region = store.region(region_id)
    assert region is not None
    assert store.advice_inputs(region_id) is None
    again = regions.predict_region(state, region_id)
    fuses = next(c for c in again["advice"]["criteria"] if c["name"] == "compile-fuses")
    assert fuses["source"].startswith("Inductor's own kernels")
    assert again["advice"]["notes"][: len(region["advice"]["notes"])] == region["advice"]["notes"]
    assert len(regions.region_on_devices(state, region_id)) == len(DEVICES)
    store.close()


def test_what_an_advice_for_another_device_was_issued_on_cannot_be_read_back() -> None:
    """Its times are shown as they were recorded, on a device that is not shown: hence it is kept."""
    whole = read("L40S")
    shown = finite(whole.trace)
    advised_on = [(r, i) for r, i in zip(shown["regions"], whole.inputs, strict=True) if r["text"]]
    assert advised_on
    for region, inputs in advised_on:
        assert (inputs.device, inputs.target) == (H200, "NVIDIA L40S")
        again = advised(region["text"], reissue.inputs_from_shown(region, shown))
        assert not reissue.same_inputs(region["advice"], again)
