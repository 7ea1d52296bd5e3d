"""tritonworthy capture: a running vLLM or SGLang server records itself, and what it wrote is advised on.

Exit status: 0 done; 1 the input is wrong; 2 nothing was recorded. A program of your own: docs/capture.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.capture.engines import SGLANG, VLLM
from app.capture.serving import Request, ServingError, record
from app.check.safe import visible
from app.cli.advise import advise_files
from app.cli.inputs import check_device
from app.cli.options import budget_s, count, given_path
from app.cli.servers.remote import Remote, RemoteError

OK, NOT_RECORDED = 0, 2
MOST_STEPS = 100_000
MOST_RANKS = 4096


def add_capture(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hook `capture` into the command line."""
    capture = commands.add_parser(
        "capture",
        help="have a vLLM or SGLang server record itself, and advise on it",
        description="Tells a running server to record, waits for its traces and advises on them; several are the ranks"
        " of one run. Send it requests meanwhile. To record a program of your own: docs/capture.md.",
    )
    engine = capture.add_mutually_exclusive_group(required=True)
    for each in (VLLM, SGLANG):
        engine.add_argument(f"--{each.name}", metavar="URL", help=f"address of a {each.title} server")
    capture.add_argument(
        "--output-dir",
        type=given_path,
        metavar="DIR",
        required=True,
        help="folder that the server writes traces to, seen from here; SGLang is told it",
    )
    length = capture.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=budget_s, default=2.0, metavar="S", help="how long to record (2)")
    length.add_argument("--steps", type=count(1, MOST_STEPS), metavar="N", help="how many steps to record instead")
    capture.add_argument("--ranks", type=count(1, MOST_RANKS), default=1, metavar="N", help="traces to wait for (1)")
    capture.add_argument("--timeout", type=budget_s, default=600.0, metavar="S", help="to wait for them (600)")
    capture.add_argument("--engine-key-file", type=given_path, metavar="FILE", help="the API key of vLLM or SGLang")
    capture.add_argument("--server", metavar="URL", help="hand the traces to this server of Tritonworthy instead")
    capture.add_argument("--token-file", type=given_path, metavar="FILE", help="its token")
    capture.add_argument("--device", help="device to predict for, such as H200")
    capture.add_argument("--oracle", choices=("auto", "off"), help="as `advise` has it")
    capture.add_argument("--json", action="store_true", help="print the API's object")
    capture.set_defaults(run=_capture, companion=None, execution_trace=None, brief=False)


def _capture(arguments: argparse.Namespace) -> int:
    check_device(arguments.device)
    request = Request(
        engine=VLLM if arguments.vllm else SGLANG,
        url=arguments.vllm or arguments.sglang,
        output_dir=arguments.output_dir,
        seconds=arguments.seconds,
        steps=arguments.steps,
        ranks=arguments.ranks,
        timeout_s=arguments.timeout,
        token=_secret(arguments.engine_key_file),
    )
    try:
        traces = record(request, _say)
    except ServingError as error:
        _say(visible(str(error), 1000))
        return NOT_RECORDED
    for trace in traces:
        _say(f"recorded {trace}")
    if arguments.server:
        return _hand_over(arguments, traces)
    arguments.file = [str(trace) for trace in traces]
    return advise_files(arguments, traces)


def _hand_over(arguments: argparse.Namespace, traces: list[Path]) -> int:
    """All to a server: the ranks of one job, of which the first is answered."""
    try:
        server = Remote(arguments.server, _secret(arguments.token_file))
        answer = server.upload("/api/v1/traces", [("file", trace) for trace in traces])
    except RemoteError as error:
        _say(f"not handed over: {error}")
        return NOT_RECORDED
    print(f"{server.url}/traces/{answer['id']}")
    return OK


def _secret(path: Path | None) -> str | None:
    return path.read_text(encoding="utf-8").strip() if path is not None else None


def _say(line: str) -> None:
    print(f"tritonworthy: {line}", file=sys.stderr, flush=True)
