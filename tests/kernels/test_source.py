"""Generated files: private, whole, named by their content, and nothing of the user's text gets out of a comment."""

from __future__ import annotations

import ast
import stat
from pathlib import Path

import pytest

from kernels.codegen.generated import generate
from kernels.codegen.index import Unsupported
from kernels.codegen.text import source as files
from kernels.codegen.text.names import Names, comment
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse


@pytest.fixture(autouse=True)
def kernel_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITONWORTHY_KERNEL_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_a_file_is_private_and_named_by_its_content(kernel_folder: Path) -> None:
    (source,) = generate(lower(parse("x: f32[8, 16]\ny = x + 1\nreturn y\n"))).sources
    path = files.save(source.text, source.key)
    assert path.read_text() == source.text
    assert path.name == f"k_{source.key}.py"
    assert stat.S_IMODE(kernel_folder.stat().st_mode) == 0o700
    path.write_text("raise SystemExit('tampered with')")
    assert files.save(source.text, source.key).read_text() == source.text
    assert [p.name for p in kernel_folder.iterdir() if p.suffix == ".tmp"] == []


def test_the_same_region_gives_the_same_text() -> None:
    texts = {generate(lower(parse("x: f32[8, 16]\ny = x.exp() * 2\nreturn y\n"))).text for _ in range(2)}
    assert len(texts) == 1


def test_names_of_inputs_shadow_nothing() -> None:
    text = (
        "tl: f32[8, 160]\nrow: f32[160]\ncol: f32[8, 1]\ntanh: f32[8, 160]\nlaunch: f32[160]\n"
        "y = torch.tanh(tl + row) * col + tanh - launch\nreturn y\n"
    )
    (source,) = generate(lower(parse(text))).sources
    tree = ast.parse(source.text)
    kernel = next(f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == source.kernel)
    assigned = {
        t.id for s in ast.walk(kernel) if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
    }
    assert not assigned & {"tl", "triton", "tanh", "launch"}


def test_a_comment_stays_on_its_line() -> None:
    hostile = 'y = x  # """\r\nimport os\x0b\x1c\u2028os.system("true")'
    line = comment(hostile)
    assert line.startswith("# ")
    assert len(line.splitlines()) == 1
    assert ast.parse(line).body == []


def test_names_are_identifiers_each_once() -> None:
    names = Names()
    given = [names.new(n) for n in ("x", "x", "for", "9 lives", "__import__", "tl", "d3", "")]
    assert len(set(given)) == len(given)
    assert all(n.isidentifier() for n in given)
    assert not {"for", "tl", "d3"} & set(given)


def test_indices_beyond_32_bits_are_computed_in_64() -> None:
    (large,) = generate(lower(parse("x: bf16[65536, 40000]\nb: bf16[40000]\ny = x + b\nreturn y\n"))).sources
    (small,) = generate(lower(parse("x: bf16[65536, 4000]\nb: bf16[4000]\ny = x + b\nreturn y\n"))).sources
    assert "tl.int64" in large.text
    assert "tl.int64" not in small.text


COLUMNS_FAR_APART = {
    "walked rows": "x: bf16[65536, 65536].strides(1, 65536)\ny = torch.softmax(x, -1)\nreturn y\n",
    "held rows": "x: bf16[65536, 32768].strides(1, 131072)\ny = torch.softmax(x, -1)\nreturn y\n",
    "several rows": "x: bf16[8388608, 512].strides(1, 8388608)\ny = torch.softmax(x, -1)\nreturn y\n",
}


@pytest.mark.parametrize("name", COLUMNS_FAR_APART)
def test_columns_far_apart_are_multiplied_in_64_bits(name: str) -> None:
    (source,) = generate(lower(parse(COLUMNS_FAR_APART[name]))).sources
    assert " + col * " in source.text
    columns = [line for line in source.text.splitlines() if line.strip().startswith("col = ")]
    assert columns
    assert all("tl.int64" in line for line in columns)


def test_columns_next_to_each_other_stay_in_32_bits_however_many_rows() -> None:
    (source,) = generate(lower(parse("x: bf16[65536, 65536]\ny = torch.softmax(x, -1)\nreturn y\n"))).sources
    columns = [line for line in source.text.splitlines() if line.strip().startswith("col = ")]
    assert columns
    assert not any("tl.int64" in line for line in columns)


def test_a_number_that_counts_far_is_counted_in_64_bits() -> None:
    text = "x: f32[8192]\ny = x + torch.arange(0, 8589934592, 1048576)\nreturn y\n"
    (source,) = generate(lower(parse(text))).sources
    assert next(line for line in source.text.splitlines() if line.strip().startswith("at = ")).count("tl.int64") == 1


@pytest.mark.parametrize(
    "step", ["x // 2.5", "x % 3.0", 'torch.div(x, 3.0, rounding_mode="floor")', "torch.floor_divide(x, x)"]
)
def test_what_aten_takes_from_an_exact_fmod_is_refused(step: str) -> None:
    with pytest.raises(Unsupported, match=r"fmod|rounding mode floor"):
        generate(lower(parse(f"x: f32[8, 160]\ny = {step}\nreturn y\n")))
