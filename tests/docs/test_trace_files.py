"""docs/trace-files.md: one run has the same figures from every file, and the page says what the code says today."""

from __future__ import annotations

import re

from tools.docs.trace_files import COLUMNS, NSYS, PAGE, ROCPROFV3, page, table

SAME = COLUMNS[2:-1]
"""All but what needs types of arguments."""


def test_every_run_has_the_figures_of_its_torch_trace_and_the_page_is_up_to_date() -> None:
    made = table()
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, made) == text, "python -m tools.docs.trace_files"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in made.split("\n\n")[0].splitlines()[2:]]
    assert [row[0] for row in rows[::2]] == [*NSYS, *ROCPROFV3]
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        assert (ours[1], theirs[1]) == ("torch.profiler", "nsys" if ours[0] in NSYS else "rocprofv3")
        differ = {name for name, a, b in zip(COLUMNS, ours, theirs, strict=True) if name in SAME and a != b}
        # sets on the GPU are kernels of the runtime on ROCm, and not in the fixture
        assert differ == (set() if ours[0] in NSYS else differ & {"launches", "GPU busy"}), ours[0]


def test_the_commands_and_counts_of_the_page_are_those_of_the_code() -> None:
    from profiler.trace.read.formats.recording import RECORD_NSYS
    from profiler.trace.read.formats.rocprofv3 import MOST_BYTES

    text = PAGE.read_text(encoding="utf-8")
    for option in re.findall(r"--[a-z-]+=[\w,-]+", RECORD_NSYS):
        assert option in text
    assert f"at most {MOST_BYTES >> 30} GiB" in text
