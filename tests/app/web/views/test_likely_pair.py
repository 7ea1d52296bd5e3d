"""Which trace is offered to be compared, and what is said of why."""

from __future__ import annotations

from typing import Any

from app.web.views.likely_pair import LikelyPair, likely_pair


def summary(id: str, name: str, at: str = "12:00", device: str | None = "NVIDIA H200", status: str = "ready") -> Any:
    return {"id": id, "name": name, "device": device, "status": status, "created_at": f"2026-01-01T{at}:00+00:00"}


EAGER, COMPILED = summary("e", "llama_bf16_eager.json.gz", "10:00"), summary("c", "llama_bf16_compiled.json", "12:00")
OTHER, ELSEWHERE = summary("o", "resnet50_train.json", "12:01"), summary("x", "llama_bf16_eager.json", "11:59", "A100")


def test_the_same_model_on_the_same_gpu_comes_before_what_was_uploaded_next() -> None:
    likely = likely_pair([OTHER, COMPILED, ELSEWHERE, EAGER], a="e")
    assert (likely.a, likely.b) == ("e", "c")
    assert likely.because == "the same model by its name (but for compiled and eager), the same GPU"


def test_what_is_asked_for_as_b_gets_an_a() -> None:
    assert likely_pair([OTHER, COMPILED, EAGER], b="c") == LikelyPair(
        "e", "c", "the same model by its name (but for compiled and eager), the same GPU"
    )


def test_without_a_wish_the_newest_is_b_and_the_one_before_it_is_a() -> None:
    likely = likely_pair([COMPILED, OTHER, EAGER])
    assert (likely.a, likely.b) == ("e", "c")


def test_no_like_name_is_said_to_be_the_nearest_upload_and_no_more() -> None:
    likely = likely_pair([OTHER, EAGER], a="e")
    assert (likely.b, likely.because) == ("o", "the same GPU, uploaded nearest to it")


def test_what_was_not_read_is_not_offered_and_both_wishes_stand() -> None:
    reading = summary("r", "llama_bf16_compiled.json", status="reading")
    assert likely_pair([reading, EAGER], a="e") == LikelyPair(a="e")
    assert likely_pair([OTHER, COMPILED, EAGER], a="o", b="e") == LikelyPair("o", "e")
    assert likely_pair([]) == LikelyPair()


def test_a_forward_pass_is_not_offered_for_a_training_step() -> None:
    train = summary("t", "llama_bf16_step.json", "12:02") | {"backward_time_us": 10.0}
    again = summary("u", "gpt_step.json", "09:00", "A100") | {"backward_time_us": 20.0}
    assert likely_pair([train, EAGER | {"backward_time_us": 0.0}, again], a="t").b == "u"
    assert likely_pair([train, EAGER | {"backward_time_us": 0.0}], a="t").because == "no other trace does the same work"


def test_prefill_and_decode_by_their_names_are_not_one_work() -> None:
    prefill, decode = summary("p", "llama_prefill.json"), summary("d", "llama_decode.json")
    assert likely_pair([prefill, decode, OTHER | {"name": "resnet50.json"}], a="p").b == "o"


def test_prefill_and_decode_by_their_shapes_are_not_one_work_whatever_their_names() -> None:
    def served(id: str, name: str, kind: str) -> Any:
        return summary(id, name) | {"serving": {"kind": kind, "tokens": 1, "single_share": 1.0}}

    prefill, decode = served("p", "llama_a.json", "prefill"), served("d", "llama_b.json", "decode")
    assert likely_pair([prefill, decode, OTHER], a="p").b == "o"
    misnamed = served("m", "llama_decode.json", "prefill")
    assert likely_pair([served("q", "llama_prefill.json", "prefill"), misnamed, decode], a="q").b == "m"
