"""Generated chains, each computed in two right ways, none of which may be refused.

python benchmarks/validation/bounds_chains.py [--chains 2000] [--first 0] [--device cpu] [--seconds S] [--out FILE]

Chains are those that the kernel generator is tried on (pointwise, reducing), and matrix products between them; a third
have gradients. One way computes all in float32 and rounds once, as a fused kernel does; the other rounds every result
as eager does and takes its sums backwards and in parts. Prints what is refused and ends with 1 if anything is. Several
runs with one --claims FOLDER share the chains, in blocks; --out is written after each block.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from benchmarks.validation.bounds import checked  # noqa: E402
from benchmarks.validation.bounds_right import Build, Call, Tensors, in_f32  # noqa: E402
from kernels.measure.planner import software  # noqa: E402
from kernels.measure.records import Record, judge_record  # noqa: E402
from tools.fuzz.claims import claimed  # noqa: E402
from tools.gpu.random_chains import chain_of_seed  # noqa: E402

FAMILIES = ("pointwise", "reducing", "products")
BLOCK = 20
"""Chains that a run claims at once."""
THOROUGH = 8
"""Every eighth chain is checked on all distributions of inputs, the others on three."""
STEPS = (
    "torch.tanh({0})", "F.gelu({0})", "F.silu({0})", "{0} * 0.5 + {1}", "torch.sigmoid({0}) * {1}",
    "softmax({0}, -1)", "F.layer_norm({0}, [{n}])", "{0} - {0}.mean(-1, keepdim=True)", "F.relu({0}) + {1}",
    "{0} * torch.rsqrt({0}.pow(2).mean(-1, keepdim=True) + 1e-5)", "{0} / ({0}.abs().amax(-1, keepdim=True) + 0.1)",
    "log_softmax({0}, -1)", "torch.exp({0}.clamp(-4, 2))", "{0}.cumsum(-1) * 0.1", "{0} - {1}",
)  # fmt: skip
DTYPES = ("bf16", "f16", "f32")


def products_of_seed(number: int) -> str:
    """Two to four matrix products with steps between them."""
    random = Random(number)
    dtype, m = random.choice(DTYPES), random.choice((24, 37, 64))
    n = random.choice((32, 48, 100))
    inputs, lines, last = [f"x: {dtype}[{m}, {n}]"], [], ["x"]
    for product in range(random.randint(1, 3)):
        wider = random.choice((32, 64, 130))
        inputs.append(f"w{product}: {dtype}[{n}, {wider}]")
        lines.append(f"p{product} = {last[-1]} @ w{product}")
        last, n = [f"p{product}"], wider
        for step in range(random.randint(1, 3)):
            text = random.choice(STEPS).format(last[-1], random.choice(last), n=n)
            lines.append(f"s{product}_{step} = {text}")
            last.append(f"s{product}_{step}")
    return "\n".join([*inputs, *lines, f"return {last[-1]}"]) + "\n"


def text_of_seed(number: int) -> str:
    """The chain of a number: the families in turn, every third of each with gradients."""
    family = FAMILIES[number % len(FAMILIES)]
    text = products_of_seed(number) if family == "products" else chain_of_seed(number, "small", family)
    if number // len(FAMILIES) % 3:
        return text
    head, _, rest = text.partition("\nreturn")
    return re.sub(r"^(\w+: (?:f32|bf16|f16)\[[^\n]*)$", r"\1.requires_grad", head, flags=re.M) + "\nreturn" + rest


SUMS = frozenset({"sum", "mean", "var", "std", "logsumexp", "_softmax", "_log_softmax", "norm"})


class _Backwards(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums over dimensions from their ends, products in two parts of their inner dimension."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in ("mm", "bmm") and args[0].shape[-1] > 1:
            half = args[0].shape[-1] // 2
            a, b = args
            low = a[..., half:].float() @ b[..., half:, :].float()
            return (low + a[..., :half].float() @ b[..., :half, :].float()).to(a.dtype)
        if name in SUMS and args[0].dim():
            turned = args[0].flip(tuple(range(args[0].dim())))
            result = func(turned, *args[1:], **kwargs)
            return result.flip(tuple(range(result.dim()))).contiguous() if result.dim() else result
        return func(*args, **kwargs)


def backwards(eager: Call) -> Call:
    """Every result rounded as eager rounds it, sums in another order."""

    def run(*x: torch.Tensor) -> Tensors:
        with _Backwards():  # type: ignore[no-untyped-call]
            return eager(*x)

    return run


WAYS: dict[str, Build] = {"in f32, rounded once": in_f32, "sums backwards": backwards}


def refusals(number: int, device: str, thorough: bool = True) -> dict[str, str]:
    """Which of the two ways is refused, and why. "" for one that is not."""
    text = text_of_seed(number)
    eager = checked(text, None, device, seed=number, thorough=thorough)
    answers = {}
    for name, build in WAYS.items():
        cases, mutated = checked(text, build, device, seed=number, thorough=thorough)
        record = Record(name, "library", cases=[cases], mutated=[mutated])
        judge_record(record, [eager[0]], [eager[1]], [""])
        answers[name] = "" if record.status == "correct" else record.message
    return answers


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chains", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=math.inf, help="from when on no chain is begun")
    parser.add_argument("--claims", type=Path, help="a folder for all runs that share these chains")
    parser.add_argument("--out", type=Path, help="where to write the counts as JSON")
    arguments = parser.parse_args()
    counted: Counter[str] = Counter()
    started, done, refused = time.perf_counter(), [], []
    last = arguments.first + arguments.chains
    name = torch.cuda.get_device_name(arguments.device) if arguments.device != "cpu" else "cpu"
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for block in range(arguments.first, last, BLOCK):
        if time.perf_counter() - started > arguments.seconds or not claimed(arguments.claims, f"chains {block}"):
            continue
        for number in range(block, min(block + BLOCK, last)):
            if time.perf_counter() - started > arguments.seconds:
                break
            for way, message in refusals(number, arguments.device, thorough=number % THOROUGH == 0).items():
                counted["refused" if message else "accepted"] += 1
                if message:
                    refused.append({"chain": number, "way": way, "message": message, "text": text_of_seed(number)})
                    print(
                        f"{number} ({FAMILIES[number % len(FAMILIES)]}), {way}: {message}\n{text_of_seed(number)}",
                        flush=True,
                    )
            done.append(number)
        print(f"{len(done)} chains, {dict(counted)}, {time.perf_counter() - started:.0f} s", flush=True)
        if arguments.out:
            made = {"device": name, "software": software(), "chains": done, **counted, "refusals": refused}
            arguments.out.write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if counted["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
