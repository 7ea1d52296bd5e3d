"""Wording: headline, next action and code of an Advice, for each way the rule can end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.advice.beyond_triton import named
from app.advice.case import Case, percent, short
from app.advice.criteria import BY_NAME, kernel_problem, runs_on_library, worth_it
from app.advice.launches import launch_bound
from app.advice.model import Alternative, Criterion
from app.advice.options import no_triton, nothing_to_compute
from app.advice.shared_mask import MAY_BE_CAUSAL, SDPA, adds_shared_mask
from app.atlas.shipped import basis_of
from app.estimate.facts import Cover
from app.estimate.range import Range
from profiler.region.graph.cost_model import Cost
from profiler.trace.analyze.kernel_kinds import is_tf32


@dataclass(frozen=True, slots=True)
class Words:
    """What an Advice says."""

    headline: str
    action: str
    call: str
    notes: tuple[str, ...]


def write(
    case: Case,
    criteria: Mapping[str, Criterion],
    chosen: Alternative,
    why: str,
    region: Range | None,
) -> Words:
    """The words for the chosen alternative. why: which part of the rule took it."""
    writers = {"skip": _skip, "library": _library, "compile": _compile, "triton": _triton, "cuda": _cuda}
    headline, action, call = writers[chosen.tool](case, criteria, chosen, why, region)
    return Words(headline, action, call, _notes(case, criteria, chosen))


def times_words(region: Range | None) -> str:
    """ ", predicted 3.2 times as fast (2.4 to 4.1)"; "" without a prediction."""
    if region is None:
        return ""
    span = f"{factor_words(region.low)} to {factor_words(region.high)}"
    return f", predicted {factor_words(region.mid)} times as fast ({span})"


def factor_words(value: float) -> str:
    """1.27, 7.9, 68, 120: two figures, never an exponent."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _skip(
    case: Case, criteria: Mapping[str, Criterion], chosen: Alternative, why: str, region: Range | None
) -> tuple[str, str, str]:
    title = case.facts.title
    if why in BY_NAME and BY_NAME[why].leave:
        return f"Leave {title}: {BY_NAME[why].leave}", f"Nothing: {criteria[why].because}.", ""
    if why == "nothing":
        return f"Leave {title}: there is nothing to compute", f"Nothing: {nothing_to_compute(case.facts)}.", ""
    if why == "launch-bound":
        device = no_triton(case.device)
        action = (
            f"Capture the step in a CUDA graph (torch.cuda.graph){', which needs no Triton' if device else ''}; sizes "
            "and addresses have to stay the same."
        )
        if not device:
            return f"Launch-bound step: a CUDA graph replays {title} as it is", action, ""
        return f"Launch-bound, and {device}: a CUDA graph of the step", action, ""
    cover = runs_on_library(case.covers)
    small = case.share is not None and case.share < case.settings.worth_share
    if why == worth_it.name and (cover is None or small):
        because = criteria[worth_it.name].because
        if small:
            return f"Leave {title}: not worth it", f"Nothing here: {because}. Look at a larger region.", ""
        limit = percent(case.settings.worth_share)
        return f"Leave {title}: nothing would save {limit} of the step", f"Nothing: {because}.", ""
    if why == kernel_problem.name:
        return _other_problem(case, str(criteria[kernel_problem.name].value))
    if cover is not None:
        if (precision := _in_f32(case)) is not None:
            first, call = precision
            return (
                f"Already {_library_at_work(case, cover)}, in f32 on the vector units: {first} first",
                f"Keep the call, not its precision: its kernels are f32's on the vector units; {first} lets the matrix "
                "units do it, where its mantissa will do.",
                call,
            )
        action = f"Keep it: it runs on {short(cover.candidate)} already"
        return f"Already {_library_at_work(case, cover)}", _with_hint(case, action), ""
    if case.facts.compiled:
        return f"Leave {title}: torch.compile has fused it", "Keep it as torch.compile made it.", ""
    if why == "unseen":
        return _unpredicted(case)
    return f"Leave {title}: nothing is predicted to be much faster", "Keep it: no tool is predicted to gain enough.", ""


def _unpredicted(case: Case) -> tuple[str, str, str]:
    """Nothing could be predicted, which is not that nothing is faster."""
    facts = case.facts
    open_question = "whether another tool is faster is not known"
    if facts.library_call:
        return (
            f"Already {facts.library_call}",
            f"Keep it: the trace does not tell what it computes on which sizes, so {open_question}.",
            "",
        )
    if facts.already_tuned:
        because = "the trace does not tell what it computes; described as a region's text it can be judged"
    elif not facts.shapes:
        because = "its sizes or operations are not known: record with record_shapes=True"
    else:
        because = "no tool's time is known for these operations"
    return f"{facts.title}: nothing could be predicted", f"Nothing yet: {because}; {open_question}.", ""


def _in_f32(case: Case) -> tuple[str, str] | None:
    """(precision, code) where the names of a product's or convolution's kernels tell that the vector units compute it,
    on a device whose matrix units would; None elsewhere."""
    facts, device = case.facts, case.device
    names = " ".join(facts.kernel_names)
    if not F32_KERNELS.search(names) or MATRIX_UNITS.search(names) or device.is_amd:
        return None
    if facts.kind == "gemm" and device.tf32_rate > device.f32_rate and not facts.tf32_is_on:
        return "TF32", 'torch.set_float32_matmul_precision("high")'
    if device.bf16_rate > device.f32_rate:
        return "bf16", 'with torch.autocast("cuda", torch.bfloat16): ...'
    if device.f16_rate > device.f32_rate:
        return "f16, with its loss scaled where it is trained,", 'with torch.autocast("cuda", torch.float16): ...'
    return None


F32_KERNELS = re.compile(r"sgemm|scudnn|simt|implicit_convolve", re.IGNORECASE)
MATRIX_UNITS = re.compile(r"tensorop|s1688|s16816|wgmma|hmma|tf32|h884|s884|h16816", re.IGNORECASE)
"""In names of kernels: of f32 on the vector units, and of the matrix units."""
TENSILE = "Cijk_"
"""How the names of the kernels begin that Tensile writes for hipBLASLt and rocBLAS."""
CUBLAS_CALLS = frozenset({"library:torch.mm", "library:torch.bmm", "library:torch.matmul"})
"""Calls that are cuBLAS's on NVIDIA's GPUs."""


def _library_at_work(case: Case, cover: Cover) -> str:
    """What runs the region now: cuBLAS by its own name, any other by the call."""
    if cover.candidate in CUBLAS_CALLS and case.device.arch.startswith("sm_"):
        return "cuBLAS"
    if cover.candidate in CUBLAS_CALLS and any(name.startswith(TENSILE) for name in case.facts.kernel_names):
        return "hipBLASLt's or rocBLAS's kernel"
    return short(cover.candidate)


def _with_hint(case: Case, action: str) -> str:
    """What helps a library call from outside: precision and layout before any kernel."""
    cost = case.facts.cost
    in_tf32 = case.facts.tf32_is_on or any(map(is_tf32, case.facts.kernel_names))
    if cost is not None and cost.matmul_dtype == "f32" and cost.gemm_flops and not in_tf32:
        rate = case.device.tf32_rate / case.device.f32_rate if case.device.f32_rate else 0
        if rate > 1:
            return (
                f"{action}; it is in f32 without TF32. Where 10 bits of mantissa will do, "
                'torch.set_float32_matmul_precision("high") lets the matrix units do it'
            )
    if case.facts.kind == "convolution" and case.facts.dtype not in ("bf16", "f16"):
        return f"{action}; memory_format=torch.channels_last and 16 bits come before any kernel."
    return f"{action}."


def _other_problem(case: Case, problem: str) -> tuple[str, str, str]:
    title = case.facts.title
    if problem == "communication":
        action = (
            "Overlap it with compute, send fewer or smaller messages (gradient buckets, bf16 gradients), or use a "
            "fused collective of torch.distributed._symmetric_memory; no kernel makes the wire faster."
        )
        return f"Leave {title}: communication is not a kernel problem", action, ""
    if problem == "host copy":
        action = "Pin the host's memory, copy with non_blocking=True on a side stream, or keep the data on the GPU."
        return (
            f"Leave {title}: a copy between host and GPU is not a kernel problem",
            action,
            'x = x.pin_memory().to("cuda", non_blocking=True)',
        )
    action = "Find what makes the host wait: .item(), .cpu(), printing a tensor, a data loader without workers."
    return f"Leave {title}: the GPU waits for the host", action, ""


def _first(cover: Cover) -> str:
    """What has to be there before the call can be made; "" where it is."""
    if cover.installed:
        return ""
    return f" It {cover.missing}." if cover.missing.startswith("needs ") else f" Install {cover.package} first."


def _library(
    case: Case, criteria: Mapping[str, Criterion], chosen: Alternative, why: str, region: Range | None
) -> tuple[str, str, str]:
    name = short(chosen.candidate)
    cover = next((c for c in case.covers if c.candidate == chosen.candidate), None)
    headline = f"Call {name} for {case.facts.title}{times_words(region)}"
    part = "it" if cover is None or cover.whole else "the part that it covers"
    install = "" if cover is None else _first(cover)
    checks = [t for t, holds in cover.conditions if holds is None] if cover is not None else []
    condition = f" Check: {'; '.join(checks)}." if checks else ""
    return headline, f"Replace {part} by {name}.{install}{condition}", chosen.call


def _compile(
    case: Case, criteria: Mapping[str, Criterion], chosen: Alternative, why: str, region: Range | None
) -> tuple[str, str, str]:
    title = case.facts.title
    if chosen.mode == "reduce-overhead":
        headline = f"Launch-bound: torch.compile with CUDA graphs for {title}{times_words(region)}"
        if case.facts.gpu_idle_share is not None:
            headline = f"Launch-bound step: CUDA graphs for all of it, {title} among it"
        action = (
            'Compile the step with mode="reduce-overhead", or capture it in a CUDA graph; sizes and addresses have to '
            "stay the same (a static cache)."
        )
        return headline, action, chosen.call
    mode = "" if chosen.mode == "default" else " in mode max-autotune"
    headline = f"Use torch.compile on {title}{mode}{times_words(region)}"
    shape = case.facts.heaviest
    made = "" if shape is None else _fused(shape.cost)
    return headline, f"Wrap the enclosing function in torch.compile{made}.", chosen.call


def _fused(cost: Cost) -> str:
    """What fusing makes less of: launches, else a tenth of the bytes or more; nothing where neither is."""
    before, after = cost.unfused, cost.fused
    if after.launches < before.launches:
        return f": {before.launches} launches become {after.launches}"
    if after.bytes_moved <= 0.9 * before.bytes_moved:
        return f": {percent(1 - after.bytes_moved / before.bytes_moved)} fewer bytes go through memory"
    return ""


def _triton(
    case: Case, criteria: Mapping[str, Criterion], chosen: Alternative, why: str, region: Range | None
) -> tuple[str, str, str]:
    title = case.facts.title
    headline = f"Write Triton for {title}{times_words(region)}"
    if any(k.candidate == chosen.candidate for k in case.facts.kernels):
        headline = f"Triton for {title}: this project's kernel {chosen.mode}{times_words(region)}"
        action = "Validate it on your GPU against torch.compile, then take it as a starter kit."
        if case.facts.requires_grad:
            action = "Validate it on your GPU against torch.compile, then call it: autograd knows its backward."
    elif chosen.mode == "generated":
        action = "Validate the generated kernel on your GPU, then take its source from the validation's page."
    else:
        headline = f"Unproven: a Triton kernel for {title}{times_words(region)}"
        action = (
            f"There is no candidate to run yet: write one kernel for all of it, about {chosen.effort_lines} lines, "
            "autotuned over the sizes in use; validate it against torch.compile before it stays."
        )
    return headline, action, chosen.call


def _cuda(
    case: Case, criteria: Mapping[str, Criterion], chosen: Alternative, why: str, region: Range | None
) -> tuple[str, str, str]:
    needs = ", ".join(case.facts.needs)
    headline = f"CUDA, or a library that has it, for {case.facts.title}{times_words(region)}"
    action = f"It needs {needs}, which Triton does not give: look for a library that has it, then write CUDA."
    beyond = named(case.device.arch, case.facts.needs)
    action = f"{action[:-1]}, or first what gives {beyond}." if beyond else action
    if "nvlink" in case.facts.needs:
        action = (
            "It mixes communication and compute over NVLink: torch.ops.symm_mem has fused collectives (all-gather with "
            "matmul, matmul with reduce-scatter); write CUDA only where those do not fit."
        )
    return headline, action, chosen.call


def _notes(case: Case, criteria: Mapping[str, Criterion], chosen: Alternative) -> tuple[str, ...]:
    notes: list[str] = []
    facts = case.facts
    if case.share is None:
        notes.append("the share of the step is not known, so the region counts as worth it")
    if not facts.shapes:
        notes.append("sizes are not known, so no time is predicted; record the trace with record_shapes=True")
    if not case.device.ceilings_measured and facts.shapes:
        notes.append(f"ceilings of {case.device.name} are the datasheet's; the estimate's rates were fitted on an H200")
    atlas = basis_of(case.device)
    if case.device.name not in case.rates.devices and not (atlas is not None and atlas.own) and facts.shapes:
        notes.append(
            f"nothing was measured on {case.device.name}: times are scaled by its ceilings, their ranges wider"
        )
    if len(facts.shapes) > case.settings.recompiles and chosen.tool == "compile":
        notes.append(
            f"{len(facts.shapes)} shapes are more than torch.compile makes kernels for: dynamic=True, or pad them"
        )
    if chosen.mode == "reduce-overhead" and facts.by_hand:
        call = next((c for c in case.covers if c.covers and c.whole and c.installed and not c.already), None)
        if call is not None:
            notes.append(f"{short(call.candidate)} makes one launch of it, with or without a graph")
    if chosen.candidate == SDPA and "attn_mask=None" not in chosen.call and adds_shared_mask(case):
        notes.append(MAY_BE_CAUSAL)
    odd = unaligned_sizes(case)
    if odd and chosen.mode != "padding":
        notes.append(f"a matrix product has rows of {odd} elements, no multiple of 16 bytes: pad them to 64")
    if facts.requires_grad and chosen.mode == "custom":
        notes.append("the region is forward and backward: the backward kernel has to be written too")
    batched = _table_batch(case)
    if batched is not None and chosen.candidate != batched.candidate:
        get = f": worth installing to try ({batched.install})" if batched.install else ""
        notes.append(
            f"FBGEMM's table-batched embedding ({short(batched.candidate)}) runs the bags of all tables in one kernel, "
            f"and their backward with the optimizer's step{get}"
        )
    if launch_bound(criteria[kernel_problem.name]) and facts.gpu_idle_share is None:
        notes.append("launch-bound by itself: times are those of back-to-back calls, in which the host sets the pace")
    if chosen.tool == "compile":
        notes.append("the first call compiles: seconds to minutes")
    return tuple(notes)


TABLE_BATCH = "library:fbgemm_gpu.tbe"


def _table_batch(case: Case) -> Cover | None:
    """FBGEMM's call for several tables, where the step has several bags and it takes their kind."""
    cover = next((c for c in case.covers if c.candidate == TABLE_BATCH and c.covers), None)
    shape = case.facts.heaviest
    bags = sum(o.target.startswith("_embedding_bag") and not o.backward for o in shape.operations) if shape else 0
    return cover if bags * case.facts.calls > 1 else None


def unaligned_sizes(case: Case) -> str:
    """Sizes of matrix products whose rows are no multiple of 16 bytes, as text."""
    gemms = [o for s in case.facts.shapes for o in s.operations if o.m]
    sizes = {size for g in gemms for size in (g.n, g.k) if size > 1 and size * g.itemsize % 16}
    return ", ".join(f"{s:,}" for s in sorted(sizes)[:3])
