"""A region's candidate goes where the region came from, with its tensors in the right order, or nowhere."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.validation import placement  # noqa: E402 (torch is wanted, not required)
from benchmarks.validation.blocks import CASES, Part, make  # noqa: E402
from kernels import baselines  # noqa: E402
from profiler.region.language.program import empty_input  # noqa: E402
from profiler.region.language.text import parse  # noqa: E402
from tools.records.step_record import choose_regions  # noqa: E402

ATTENTION = """a: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
b: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
c: bf16[4, 16, 16]
d: bf16[2, 4, 16, 8].strides(1536, 8, 96, 1)
return softmax({first} @ {second}.transpose(-2, -1) / 2.8284271247461903 + c, dim=-1) @ {third}
"""
ADD_NORM = """x: bf16[2, 5, 32]
r: bf16[2, 5, 32]
w: bf16[32]
b: bf16[32]
return layer_norm(x + r, [32], {weights}, eps=1e-06)
"""
ROPE = """N: sizes[4, 2]
x: bf16[2, 16, N, 8]
cos: bf16[1, 1, 16, 8]
sin: bf16[1, 1, 16, 8]
x = x.permute(0, 2, 1, 3)
return x * cos + cat([-x[..., 4:], x[..., :4]], dim=-1) * sin
"""


@pytest.fixture(scope="module")
def called():
    return {name: placement.calls(*make(name, True, "cpu")) for name in CASES}


def fit(text, called, **sizes):
    return placement.fit(parse(text), sizes, called, "cpu")


@pytest.mark.parametrize(
    ("first", "second", "third", "order"), [("a", "b", "d", (0, 1, 3, 2)), ("d", "a", "b", (1, 2, 3, 0))]
)
def test_the_order_of_inputs_of_one_shape_is_found_by_their_values(called, first, second, third, order):
    found = fit(ATTENTION.format(first=first, second=second, third=third), called["handrolled"])
    assert (found.call.part, found.order, found.missing) == ("attention", order, 0)


@pytest.mark.parametrize(("weights", "order"), [("w, b", (2, 3)), ("b, w", (3, 2))])
def test_an_output_that_the_region_does_not_return_is_computed_beside_it(called, weights, order):
    region = parse(ADD_NORM.format(weights=weights))
    found = placement.fit(region, {}, called["vit"], "cpu")
    assert (found.call.part, found.order[2:], found.given) == ("add_norm", order, (None, 0))
    model, inputs = make("vit", True, "cpu")
    runner = baselines.eager(region, {}, "cpu")
    with torch.no_grad():
        before = model(*inputs)
        model.place({"add_norm": placement.replacement(model.parts["add_norm"], [(found, "eager", runner)], 1)})
        assert torch.equal(before, model(*inputs))


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION.format(first="a", second="b", third="d").replace("2.828", "1.414"),
        ATTENTION.format(first="a", second="b", third="d").replace(".strides(1536, 8, 96, 1)", ""),
        ATTENTION.format(first="a", second="b", third="d").replace("bf16", "f16"),
    ],
    ids=["another result", "another layout", "another type"],
)
def test_a_region_that_no_part_computes_goes_nowhere(called, text):
    assert fit(text, called["handrolled"]) is None


def test_each_combination_of_shapes_gets_its_own_and_the_rest_stays_eager(called):
    found = fit(ROPE, called["llama"], N=2)
    seen = []

    def runner(*tensors):
        seen.append(tensors[0].shape[2])
        return baselines.eager(parse(ROPE), {"N": 2}, "cpu")(*tensors)

    model, inputs = make("llama", True, "cpu")
    with torch.no_grad():
        before = model(*inputs)
        model.place({"rope": placement.replacement(model.parts["rope"], [(found, "eager", runner)], signatures=2)})
        assert torch.equal(before, model(*inputs))
    assert seen == [2] * model.sizes.layers


def test_what_is_put_there_is_what_the_model_runs():
    model, inputs = make("handrolled", True, "cpu")
    with torch.no_grad():
        before = model(*inputs)
        model.place({"norm": lambda x, w: (x * 0,)})
        assert not torch.equal(before, model(*inputs))
        model.place({})
        assert torch.equal(before, model(*inputs))


def test_outputs_in_a_graphs_memory_are_copied_before_the_next_call(called):
    found = fit(ROPE, called["llama"], N=2)
    memory = torch.zeros_like(found.call.outputs[0])
    function = placement.replacement(
        Part(lambda *t: t), [(found, "compile-reduce-overhead", lambda *t: (memory.add_(1),))], signatures=1
    )
    first, second = function(*found.call.inputs)[0], function(*found.call.inputs)[0]
    assert (first.unique().item(), second.unique().item()) == (1, 2)


@pytest.mark.parametrize("name", CASES)
def test_what_its_own_trace_says_to_replace_has_a_part_of_those_types_shapes_and_layouts(name, data):
    path = data / "traces" / f"{CASES[name].trace}.json.gz"
    from app.trace_report.report import report

    called = placement.calls(*make(name, False, "meta"))
    found = choose_regions(report(path, name)["regions"], 3)
    assert len(found) == 3
    for row in found:
        region = parse(row["text"])
        for shape in row["shapes"]:
            fakes = [empty_input(item, shape["binding"], "meta") for item in region.inputs]
            assert any(list(placement.orders(fakes, call.inputs)) for call in called), row["text"]
