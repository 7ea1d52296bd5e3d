"""tritonworthy oracle: what torch.compile would make of a region, from a shell. No web, no database, no GPU.

Exit status: 0 done; 1 the input is wrong; 2 there is no prediction, and the message says why; 3 with --against, where
the two environments differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict, cast

from app.analysis.own_oracle import start_oracle
from app.analysis.reissue import kernel_keys
from app.cli.environments.compared import DIFFERS, UNAVAILABLE, compare, compared_text
from app.cli.environments.named import VARIABLE, environment_of
from app.cli.inputs import InputError, check_device, read_text
from app.cli.options import shapes
from app.cli.streams import print_answer
from app.objects.kernel import Finding, Machine
from app.objects.oracle import OracleKernel, OraclePrediction
from profiler.hardware import find_device
from profiler.oracle.compiler.targets import TARGETS
from profiler.oracle.model import MODES
from profiler.oracle.process import Oracle, UnansweredError
from profiler.oracle.serialization import to_dict

OK, NOT_MEASURED, DIFFERENT = 0, 2, 3

LISTINGS = ("source", "ttir", "ttgir", "llir", "ptx", "sass")
"""What --show prints: Inductor's source, or a listing of Triton's compiler."""


class OraclePredictions(TypedDict):
    """What torch.compile would make of a region, one prediction a mode. launches: as it is written."""

    name: str
    text: str
    device: str
    launches: int
    oracle: list[OraclePrediction]


class CompiledKernel(TypedDict):
    """One of its kernels, as the API has it: without the id of a region, as nothing is stored."""

    key: str
    mode: str
    device: str
    arch: str
    kernel: OracleKernel
    machine: Machine
    findings: list[Finding]


class UnavailableError(Exception):
    """There is no answer, and this is why."""


def add_oracle(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `oracle` into the command line."""
    oracle = commands.add_parser("oracle", help="what torch.compile would make of a region, without a GPU")
    oracle.add_argument("file", metavar="REGION", help="a region's text, or - for stdin")
    oracle.add_argument("--device", help="GPU to predict for, such as H200")
    oracle.add_argument("--mode", choices=MODES, help="only this mode")
    oracle.add_argument("--shapes", type=shapes, metavar="JSON", help='sizes in use: [{"N": 37, "calls": 3}]')
    oracle.add_argument("--kernel", metavar="NAME", help="what the compiler decides about this kernel")
    oracle.add_argument("--show", choices=LISTINGS, help="print this text of --kernel")
    oracle.add_argument("--against", metavar="ENV", help="compare with another environment's torch: an interpreter, a"
                        " virtual environment's folder, or torch==X.Y of those in " + VARIABLE)  # fmt: skip
    oracle.add_argument("--json", action="store_true", help="print the API's object")
    oracle.set_defaults(run=_oracle)


def _oracle(arguments: argparse.Namespace) -> int:
    from profiler.region.model import RegionError

    if arguments.show and not arguments.kernel:
        raise InputError("--show goes with --kernel NAME")
    if arguments.against and arguments.kernel:
        raise InputError("--kernel goes without --against, which shows the sources of all kernels")
    text, device = read_text(arguments.file), check_device(arguments.device)
    if arguments.against:
        return _compare(arguments, text, device)
    with start_oracle() as oracle:
        try:
            predictions = predict(oracle, text, device=device, mode=arguments.mode, shapes=arguments.shapes)
        except RegionError as error:
            raise InputError(str(error)) from None
        missing = [p["unavailable"] for p in predictions["oracle"] if p["unavailable"]]
        if not arguments.kernel:
            print_answer(predictions, prediction_text, as_json=arguments.json)
            return NOT_MEASURED if missing else OK
        try:
            mode = _mode_of(predictions, arguments.kernel)
            kernel = compile_kernel(oracle, predictions, arguments.kernel, mode)
            if arguments.show:
                print(listing_text(kernel, arguments.show))
            else:
                print_answer(kernel, kernel_text, as_json=arguments.json)
        except KeyError:
            if missing:
                print(f"the prediction is unavailable: {missing[0]}", file=sys.stderr)
                return NOT_MEASURED
            raise InputError(
                "\n  ".join([f"no kernel {arguments.kernel}; there are:", *kernel_names(predictions)])
            ) from None
        except UnavailableError as error:
            print(error, file=sys.stderr)
            return NOT_MEASURED
    return OK


def _compare(arguments: argparse.Namespace, text: str, device: str | None) -> int:
    from profiler.region.model import RegionError

    environment = environment_of(arguments.against)
    try:
        compared = compare(text, environment, device=device, mode=arguments.mode, shapes=arguments.shapes)
    except RegionError as error:
        raise InputError(str(error)) from None
    print_answer(compared, compared_text, as_json=arguments.json)
    outcomes = {mode["outcome"] for mode in compared["modes"]}
    return NOT_MEASURED if UNAVAILABLE in outcomes else DIFFERENT if DIFFERS in outcomes else OK


def _mode_of(predictions: OraclePredictions, kernel: str) -> str:
    """The mode asked for, else the first that has the kernel."""
    modes = [p["mode"] for p in predictions["oracle"]]
    return next((m for m in modes if find_kernel(predictions, m, kernel)), modes[0])


def predict(
    oracle: Oracle, text: str, *, device: str | None, mode: str | None, shapes: Sequence[Mapping[str, float]] | None
) -> OraclePredictions:
    """What torch.compile would make of a region's text.

    mode: None for all that make a difference to the region. Raises RegionError for a text that cannot be read.
    """
    from app.analysis import service

    prepared = service.prepare_region(text, device=device, shapes=shapes)
    if mode is None:
        predictions = service.predict_compile(oracle, prepared, oracle.timeout_s).predictions
    else:
        predictions = (oracle.predict(prepared.text, prepared.device, mode, prepared.sizes or None),)
    return {
        "name": prepared.facts.title,
        "text": prepared.text,
        "device": prepared.device.name,
        "launches": prepared.cost.unfused.launches,
        "oracle": [cast("OraclePrediction", to_dict(p)) for p in predictions],
    }


def find_kernel(predictions: OraclePredictions, mode: str, name: str) -> tuple[OraclePrediction, OracleKernel] | None:
    """A kernel of a mode by the name that `kernel_names` gives it, with its prediction."""
    for prediction in predictions["oracle"]:
        if prediction["mode"] == mode:
            for key, kernel in zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True):
                if key == name:
                    return prediction, kernel
    return None


def compile_kernel(oracle: Oracle, predictions: OraclePredictions, name: str, mode: str) -> CompiledKernel:
    """One of `predict`'s kernels, compiled, by name. Raises UnavailableError, KeyError."""
    pair = find_kernel(predictions, mode, name)
    if pair is None:
        raise KeyError(name)
    prediction, kernel = pair
    device = find_device(prediction["device"])
    if device is None or device.arch not in TARGETS:
        raise UnavailableError(f"Triton compiles for none of {prediction['device']}'s kind")
    try:
        made = oracle.machine(kernel.get("source") or "", kernel["name"], device.arch)
    except UnansweredError as fault:
        raise UnavailableError(str(fault)) from None
    machine = cast("Machine", {k: v for k, v in made.items() if k != "findings"})
    return {
        "key": name, "mode": mode, "device": device.name, "arch": device.arch, "kernel": kernel, "machine": machine,
        "findings": made["findings"],
    }  # fmt: skip


def kernel_names(predictions: OraclePredictions) -> list[str]:
    """Every kernel that can be asked for, with its mode."""
    return [f"{key} ({p['mode']})" for p in predictions["oracle"] for key in kernel_keys(p["kernels"])]


def prediction_text(predictions: OraclePredictions) -> str:
    """`predict`'s answer for people."""
    return "\n".join([f"{predictions['name']}, on {predictions['device']}", *_mode_lines(predictions)])


def _mode_lines(predictions: OraclePredictions) -> Iterator[str]:
    for prediction in predictions["oracle"]:
        yield ""
        if prediction["unavailable"]:
            yield f"{prediction['mode']}: the prediction is unavailable: {prediction['unavailable']}"
            continue
        yield f"{prediction['mode']}: {predictions['launches']} launches -> {prediction['launches']}"
        yield f"  {prediction['how']}; torch {prediction['torch']}, Triton {prediction['triton']}"
        yield from (f"  replaced: {r['because']}: {r['name']}" for r in prediction["replaced"])
        yield from (f"  assumed: {a}" for a in prediction["assumed"])
        for key, kernel in zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True):
            moved = "" if kernel["bytes_moved"] is None else f", {kernel['bytes_moved']:,} bytes"
            lines = f", lines {', '.join(map(str, kernel['lines']))}" if kernel["lines"] else ""
            stage = "" if not prediction["training"] else f", {kernel['stage']}"
            yield f"  {key}: {kernel['kind']}, {kernel['calls']} launched{moved}{lines}{stage}"
            yield f"      {', '.join(kernel['operations'])}"
        yield from (f"  library call: {e['name']}, {e['calls']} called" for e in prediction["externs"])


def kernel_text(answer: CompiledKernel) -> str:
    """`compile_kernel`'s answer for people: what the compiler decided."""
    kernel, machine = answer["kernel"], answer["machine"]
    head = f"{kernel['name']} on {answer['device']} ({answer['arch']}), Triton {machine['triton']}"
    findings = [
        f"  {f['text']}" + (f": line{'' if len(f['lines']) == 1 else 's'} {_join(f['lines'])}" if f["lines"] else "")
        for f in answer["findings"]
    ]
    return "\n".join(
        [head, *findings, f"  listings: {', '.join(k for k in machine['texts'] if k in LISTINGS)} (--show)"]
    )


def listing_text(answer: CompiledKernel, show: str) -> str:
    """One text of a compiled kernel. Raises UnavailableError for one that its target does not have."""
    if show == "source":
        return (answer["kernel"].get("source") or "").strip()
    if show not in answer["machine"]["texts"]:
        raise UnavailableError(f"there is no {show} for {answer['device']}")
    return answer["machine"]["texts"][show]


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
