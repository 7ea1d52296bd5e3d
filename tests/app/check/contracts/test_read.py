"""Contracts of a configuration: what is taken, and which key a mistake is told at."""

from __future__ import annotations

from typing import Any

import pytest

from app.check.config import ConfigError, from_mapping, read_toml
from app.check.contracts.model import Contract

Json = dict[str, Any]

TEXT = "x: f32[8]\ny = relu(x)\nreturn y\n"
GOOD: Json = {"name": "norm", "region": "norm.txt", "max_kernels": 1}


def test_every_key_is_taken() -> None:
    config = read_toml(
        '[[contracts]]\nname = "a"\nregion = "a.txt"\nmax_kernels = 2\nmax_bytes_over_minimum = 1.2\nno_extern = true\n'
        'recompiles = 0\ntraining = true\nmode = "max-autotune"\ndevice = "H100"\n'
        'torch = ">=2.13,<2.15"\nlevel = "warn"\n'
        '[[contracts]]\nname = "b"\nmodule = "model.py:make"\nno_graph_break = true\n'
        '[[contracts]]\nname = "c"\npattern = "RMSNorm*"\nmax_kernels = 1\n',
        runs_kernels=True,
    )
    first, second, third = config.contracts
    assert first == Contract(
        "a", "warn", region="a.txt", max_kernels=2, max_bytes_over_minimum=1.2, no_extern=True, recompiles=0,
        training=True, mode="max-autotune", device="H100", torch=">=2.13,<2.15",
    )  # fmt: skip
    assert (second.about, third.about) == ("model.py:make", "RMSNorm*")
    assert second.options == {"module": "model.py:make", "no_graph_break": True}


@pytest.mark.parametrize(
    ("changed", "key", "said"),
    [
        ({"region": None}, "contracts.1", "exactly one of region, module and pattern"),
        ({"pattern": "x"}, "contracts.1", "exactly one of region, module and pattern"),
        ({"name": None}, "contracts.1", "needs name"),
        ({"max_kernels": None}, "contracts.1", "needs a limit"),
        ({"max_kernels": None, "no_extern": False}, "contracts.1", "needs a limit"),
        ({"max_kernels": 0}, "contracts.1.max_kernels", "whole number"),
        ({"max_kernels": True}, "contracts.1.max_kernels", "whole number"),
        ({"max_kernels": 1.5}, "contracts.1.max_kernels", "whole number"),
        ({"max_bytes_over_minimum": 0.9}, "contracts.1.max_bytes_over_minimum", "ratio of 1 or more"),
        ({"no_extern": 1}, "contracts.1.no_extern", "true or false"),
        ({"recompiles": -1}, "contracts.1.recompiles", "whole number"),
        ({"mode": "fast"}, "contracts.1.mode", "default, max-autotune"),
        ({"device": "Voodoo 2"}, "contracts.1.device", "a device of the table"),
        ({"torch": "new"}, "contracts.1.torch", "version specifier"),
        ({"level": "eror"}, "contracts.1.level", "off, warn, error"),
        ({"max_kernel": 1}, "contracts.1.max_kernel", "did you mean max_kernels?"),
        ({"region": None, "module": "m.py:f", "recompiles": 1}, "contracts.1.recompiles", "recorded at one size"),
    ],
)
def test_a_mistake_is_told_at_its_key(changed: Json, key: str, said: str) -> None:
    table = {k: v for k, v in {**GOOD, **changed}.items() if v is not None}
    with pytest.raises(ConfigError) as error:
        from_mapping({"contracts": [table]}, runs_kernels=True)
    assert error.value.key == key
    assert said in error.value.problem


def test_a_mistake_in_the_second_table_is_told_with_its_line() -> None:
    first = '[[contracts]]\nname = "a"\nregion = "a"\nmax_kernels = 1\n'
    text = first + '\n[[contracts]]\nname = "a"\npattern = "b"\nno_extern = true\n'
    with pytest.raises(ConfigError) as error:
        read_toml(text, "t.toml", runs_kernels=True)
    assert error.value.message == "t.toml:7: contracts.2.name: there is a contract called 'a' already"


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"name": "a", "module": "model.py:make", "no_graph_break": True}, "contracts.1.module"),
        ({"name": "a", "region": "norm.txt", "max_kernels": 1}, "contracts.1.region"),
    ],
)
def test_a_server_runs_no_module_and_reads_no_file(table: Json, key: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_mapping({"contracts": [table]})
    assert error.value.key == key


def test_a_server_takes_a_text_and_a_pattern() -> None:
    tables = [
        {"name": "a", "region": TEXT, "max_kernels": 1},
        {"name": "b", "pattern": "RMSNorm*", "max_kernels": 1},
    ]
    assert [c.about for c in from_mapping({"contracts": tables}).contracts] == ["text", "RMSNorm*"]
