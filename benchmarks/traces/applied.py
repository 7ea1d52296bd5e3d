"""The advice on whole steps, followed: five models traced, advised, changed as advised, and timed again.

python benchmarks/traces/applied.py [MODEL ...] [--seconds 300] [--out FILE]

An LLM in training and in decoding, a vision model in training, a diffusion transformer and a recommender. A child of
each records a trace of its eager step; the trace is advised on as an uploaded one; every option for the whole step
that has a saving is then applied by itself, and those that are followed together at once, each in a child of its own,
and the step is timed without a profiler, one child at a time on the GPU. Prints predicted against found speed-ups.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 (run as a file)
from torch import nn  # noqa: E402

Json = dict[str, Any]
Made = tuple[nn.Module, Callable[[nn.Module], Any]]
"""A model and its step, given the model as it is to be called."""
OPTIONS = ("compile-model", "cuda-graphs", "tf32", "bf16", "channels-last", "fused-optimizer")
"""Ids of actions that this program can follow; an optimizer's has the region's name, and is followed by its flag."""
ADVISING = threading.Lock()
LOCK = Path(tempfile.gettempdir()) / "applied.lock"
OPTIMIZERS_CALL = re.compile(r"optim\..*fused=True")
OPTIMIZERS: list[torch.optim.Optimizer] = []
"""Of the child's model; none where it is not trained."""


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[nn.Module], torch.Tensor]) -> Made:
    """A training step of the model."""
    OPTIMIZERS.append(optimizer)

    def step(called: nn.Module) -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(called))
        optimizer.step()

    return model, step


def inferred(*inputs: torch.Tensor) -> Callable[[nn.Module], Any]:
    """A step of a model that is not trained."""

    def step(called: nn.Module) -> None:
        with torch.no_grad():
            called(*inputs)

    return step


def llama(small: bool, device: str) -> Any:
    """A decoder of transformers, random weights, bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    wide = 128 if small else 1024
    config = LlamaConfig(
        vocab_size=512 if small else 32000, hidden_size=wide, intermediate_size=3 * wide,
        num_hidden_layers=2 if small else 8,
        num_attention_heads=4 if small else 16, num_key_value_heads=2 if small else 8, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16)


def llama_training(small: bool, device: str) -> Made:
    """Next-token loss over 8 sequences of 1,024, AdamW as torch comes."""
    model = llama(small, device)
    tokens = torch.randint(0, 512, (2, 64) if small else (8, 1024), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return trained(model, optimizer, lambda m: m(input_ids=tokens, labels=tokens, use_cache=False).loss)


def llama_decoding(small: bool, device: str) -> Made:
    """One token of 8 sequences with a static cache of 1,024."""
    from transformers import StaticCache

    model = llama(small, device).eval()
    length = 64 if small else 1024
    cache = StaticCache(config=model.config, max_cache_len=length)
    tokens = torch.randint(0, 512, (8, 1), device=device)
    position = torch.tensor([length // 2], device=device)

    def step(called: nn.Module) -> None:
        with torch.no_grad():
            called(input_ids=tokens, past_key_values=cache, cache_position=position, position_ids=position[None])

    return model, step


def resnet(small: bool, device: str) -> Made:
    """ResNet-50 in f32, SGD with momentum."""
    from torchvision.models import resnet50  # on a GPU host

    torch.manual_seed(0)
    model = resnet50().to(device)
    images = torch.randn(2 if small else 64, 3, 64 if small else 224, 64 if small else 224, device=device)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(images), labels))


class DiffusionBlock(nn.Module):
    """A transformer block whose norms are shifted and scaled by the time step's embedding."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(wide, elementwise_affine=False) for _ in range(2))
        self.mixed, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.modulation = nn.Linear(wide, 6 * wide)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; time: [B, D]."""
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(nn.functional.silu(time))[:, None].chunk(6, -1)
        y = self.first(x) * (1 + scale) + shift
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mixed(y).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(attended)
        y = self.second(x) * (1 + scale2) + shift2
        made: torch.Tensor = x + gate2 * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))
        return made


class Diffusion(nn.Module):
    """Blocks one after another."""

    def __init__(self, wide: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DiffusionBlock(wide, heads) for _ in range(depth))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """x: [B, T, D]; time: [B, D]."""
        for block in self.blocks:
            x = block(x, time)
        return x


def diffusion(small: bool, device: str) -> Made:
    """A diffusion transformer's step of sampling in f32."""
    torch.manual_seed(0)
    wide = 64 if small else 1024
    model = Diffusion(wide, wide // 64, 2 if small else 6).to(device).eval()
    x, moment = (
        torch.randn(2 if small else 8, 64 if small else 1024, wide, device=device),
        torch.randn(2 if small else 8, wide, device=device),
    )

    return model, inferred(x, moment)


class Recommender(nn.Module):
    """Embedding bags and a bottom network, their products in pairs, a top network (Naumov et al. 2019)."""

    def __init__(self, tables: int, rows: int, wide: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, wide, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, wide), nn.ReLU()
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + wide, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """dense: [B, 13]; sparse: [tables, B, per bag]."""
        low = self.bottom(dense)
        vectors = torch.stack([low, *(bag(rows) for bag, rows in zip(self.bags, sparse, strict=True))], 1)
        products = vectors @ vectors.transpose(1, 2)
        places: Any = self.pairs
        made: torch.Tensor = self.top(torch.cat([low, products[:, places[0], places[1]]], 1))[:, 0]
        return made


def recommender(small: bool, device: str) -> Made:
    """A recommender in training, 26 tables, f32."""
    torch.manual_seed(0)
    batch, rows = (64, 100) if small else (8192, 100_000)
    model = Recommender(26, rows, 64).to(device)
    dense, sparse = torch.randn(batch, 13, device=device), torch.randint(0, rows, (26, batch, 4), device=device)
    labels = torch.rand(batch, device=device).round()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: nn.functional.binary_cross_entropy_with_logits(m(dense, sparse), labels))


def vision_transformer(small: bool, device: str) -> Made:
    """ViT-B/16 over 64 images in f32, nothing trained."""
    from torchvision.models import vit_b_16

    torch.manual_seed(0)
    model = vit_b_16().to(device).eval()
    images = torch.randn(1 if small else 64, 3, 224, 224, device=device)
    return model, inferred(images)


def efficientnet(small: bool, device: str) -> Made:
    """EfficientNet-B0 over 16 images in f32, nothing trained."""
    from torchvision.models import efficientnet_b0

    torch.manual_seed(0)
    model = efficientnet_b0().to(device).eval()
    images = torch.randn(1 if small else 16, 3, 224, 224, device=device)
    return model, inferred(images)


def convnext(small: bool, device: str) -> Made:
    """ConvNeXt-T in training, f32, AdamW."""
    from torchvision.models import convnext_tiny

    torch.manual_seed(0)
    model = convnext_tiny().to(device)
    images = torch.randn(1 if small else 48, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return trained(model, optimizer, lambda m: nn.functional.cross_entropy(m(images), labels))


def bert(small: bool, device: str) -> Made:
    """BERT-base with its attention written out, masked words of 16 sequences of 256, autocast to bf16, AdamW."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    layers = {"num_hidden_layers": 2} if small else {}
    model = BertForMaskedLM(BertConfig(attn_implementation="eager", **layers)).to(device)
    tokens = torch.randint(0, 30000, (2, 32) if small else (16, 256), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def loss(called: nn.Module) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            made: torch.Tensor = called(input_ids=tokens, labels=tokens).loss
        return made

    return trained(model, optimizer, loss)


def t5(small: bool, device: str) -> Made:
    """T5-small in training, f32, 16 sequences of 256 to 128, AdamW."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    layers = {"num_layers": 2} if small else {}
    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, dropout_rate=0.0, **layers)).to(device)
    tokens = torch.randint(0, 30000, (2, 32) if small else (16, 256), device=device)
    labels = torch.randint(0, 30000, (2, 16) if small else (16, 128), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return trained(model, optimizer, lambda m: m(input_ids=tokens, labels=labels).loss)


MODELS: dict[str, Callable[[bool, str], Made]] = {
    "llama training": llama_training, "llama decoding": llama_decoding, "resnet50 training": resnet,
    "diffusion transformer": diffusion, "recommender training": recommender,
}  # fmt: skip
"""By these the prediction of a step was mended."""
OTHERS: dict[str, Callable[[bool, str], Made]] = {
    "vit inference": vision_transformer, "efficientnet inference": efficientnet, "convnext training": convnext,
    "bert training": bert, "t5 training": t5,
}  # fmt: skip
"""Nothing was chosen by these: what the predictions are worth."""


def changed(made: Made, ids: Sequence[str], device: str) -> Callable[[], Any]:
    """The step with these options applied."""
    model, step = made
    if "tf32" in ids:
        torch.set_float32_matmul_precision("high")
    if "channels-last" in ids:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "fused-optimizer" in ids:
        for group in OPTIMIZERS[0].param_groups:
            group["fused"], group["foreach"] = True, False
    called: Any = model
    if "cuda-graphs" in ids:
        called = torch.compile(model, mode="reduce-overhead")
    elif "compile-model" in ids:
        called = torch.compile(model)
    if "bf16" not in ids:
        return lambda: step(called)

    def in_bf16() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return step(called)

    return in_bf16


def alone_on_host(lock: int) -> None:
    """Waits until no other child starts, compiles or is timed, and keeps it so until this one ends.

    lock: descriptor of a lock that this child was started with its part of. All that a child does before costs the
    host, and a step that the host paces would be timed with it.
    """
    fcntl.flock(lock, fcntl.LOCK_EX)


def synchronise(device: str) -> None:
    """The GPU's work is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_us(run: Callable[[], Any], device: str, steps: int) -> list[float]:
    """Wall time of each step with the GPU's work done, in µs."""
    for _ in range(3):
        run()
    synchronise(device)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run()
        synchronise(device)
        times.append(1e6 * (time.perf_counter() - start))
    return times


def child(model: str, what: str, out: Path, small: bool, device: str, lock: int) -> None:
    """what: "trace", or ids of options joined by "+" ("" for eager)."""
    made = {**MODELS, **OTHERS}[model](small, device)
    if what == "trace":
        run = changed(made, (), device)
        for _ in range(3):
            run()
        synchronise(device)
        from torch.profiler import ProfilerActivity, profile, schedule

        alone_on_host(lock)

        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
        with profile(activities=kinds, schedule=schedule(wait=1, warmup=2, active=2), record_shapes=True) as record:
            for _ in range(5):
                run()
                synchronise(device)
                record.step()
        record.export_chrome_trace(str(out))
        return
    run = changed(made, what.split("+"), device)
    made[1](made[0])  # what is made at the first call, such as a cache, is made in no graph
    for _ in range(4):  # compiles, and records graphs
        run()
    synchronise(device)
    alone_on_host(lock)
    times = timed_us(run, device, 3 if small else 20)
    out.write_text(json.dumps({"wall_us": statistics.median(times), "times": times}), encoding="utf-8")


def start(model: str, what: str, out: Path, arguments: argparse.Namespace, until: float) -> str:
    """Runs a child; "" or why it gave nothing."""
    command = [sys.executable, __file__, model, "--child", what, "--out", str(out), "--device", arguments.device]
    command += ["--small"] * arguments.small
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # not while another child is timed
        process = subprocess.Popen(
            [*command, "--lock", str(lock.fileno())], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment, pass_fds=[lock.fileno()],
        )  # fmt: skip
    try:
        _, said = process.communicate(timeout=max(1.0, until - time.time()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "no time was left"
    return "" if process.returncode == 0 else (said.strip().splitlines() or ["it died"])[-1][:200]


def option_of(action: Any) -> str:
    """Of OPTIONS, what the action asks for; "" for what this program cannot follow."""
    if action["id"] in OPTIONS:
        return str(action["id"])
    return "fused-optimizer" if OPTIMIZERS_CALL.search(action["call"] or "") else ""


def traced(model: str, folder: Path) -> Path:
    """Where a model's trace is."""
    return folder / f"{model.replace(' ', '-')}.json"


def of_model(model: str, folder: Path, arguments: argparse.Namespace, until: float) -> Json:
    """Everything about one model."""
    from app.trace_report.report import report

    path = traced(model, folder)
    if not path.exists():
        return {"model": model, "why": "its step was not recorded"}
    with ADVISING:  # it forks
        trace = report(path, model)
    if arguments.traces:
        (arguments.traces / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
        told = gzip.compress(json.dumps(trace, default=str).encode(), 6)
        (arguments.traces / f"{path.stem}.report.json.gz").write_bytes(told)
    listed: list[Json] = [{**a} for a in trace["actions"]]
    kept = ("id", "scope", "title", "saves_us", "step_time_us", "adds_us", "instead_of")
    actions = [{k: a[k] for k in kept} | {"option": option_of(a)} for a in listed]
    wall = (trace.get("step_parts") or {"wall_us": 0.0})["wall_us"]
    answer: Json = {
        "model": model,
        "profiled_us": wall,
        "parts": trace.get("step_parts"),
        "pace": trace.get("pace"),
        "actions": actions,
        "gain": trace["gain"],
        "found": {},
    }
    known = [a["option"] for a in actions if a["option"]]
    together = "+".join(a["option"] for a in actions if a["option"] and a["adds_us"] is not None)
    alone = [] if arguments.together else known
    wanted = dict.fromkeys(["", *alone, together] if "+" in together or arguments.together else ["", *known])
    with ThreadPoolExecutor(3) as pool:
        files = {what: folder / f"{path.stem}-{number}.out" for number, what in enumerate(wanted)}
        whys = dict(zip(files, pool.map(lambda w: start(model, w, files[w], arguments, until), files), strict=True))
    for what, file in files.items():
        answer["found"][what or "eager"] = {"why": whys[what]} if whys[what] else json.loads(file.read_text("utf-8"))
    return answer


def show(answer: Json) -> None:
    """A table of one model."""
    if "why" in answer:
        print(f"{answer['model']}: {answer['why']}", flush=True)
        return
    timed = answer["found"]
    eager = timed["eager"].get("wall_us")
    print(f"{answer['model']}: profiled {answer['profiled_us']:.0f} us, eager {eager or 0:.0f} us", flush=True)
    predicted = {a["option"]: a["step_time_us"] for a in answer["actions"] if a["step_time_us"]}
    for what, told in timed.items():
        if what == "eager":
            continue
        if "why" in told:
            print(f"  {what:32} {told['why']}", flush=True)
            continue
        step: Any = predicted.get(what) or (answer["gain"]["all"] or {}).get("step_time_us")
        ends = [answer["profiled_us"] / step[end] for end in ("high", "mid", "low")]
        ratio = eager / told["wall_us"] if eager else 0.0
        print(
            f"  {what:32} predicted {ends[1]:5.2f} ({ends[0]:.2f} to {ends[2]:.2f}) times as fast, found {ratio:5.2f}",
            flush=True,
        )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--others", action="store_true", help="the five that nothing was chosen by")
    parser.add_argument("--together", action="store_true", help="no option by itself, only those that are followed")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--traces", type=Path, help="a folder to keep the traces in")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child")
    parser.add_argument("--lock", type=int)
    arguments = parser.parse_args()
    if arguments.child is not None:
        child(arguments.models[0], arguments.child, arguments.out, arguments.small, arguments.device, arguments.lock)
        return 0
    if arguments.others:
        arguments.models = list(OTHERS)
    until = time.time() + arguments.seconds
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(arguments.models)) as pool:
        for model in arguments.models:  # one after the other, with nothing else on the host
            if why := start(model, "trace", traced(model, Path(folder)), arguments, until):
                print(f"{model}: {why}", flush=True)
        answers = list(pool.map(lambda m: of_model(m, Path(folder), arguments, until), arguments.models))
    for answer in answers:
        show(answer)
    if arguments.out:
        name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
        record = {
            "device": name,
            "date": datetime.now(UTC).date().isoformat(),
            "software": {"torch": torch.__version__},
            "models": answers,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
