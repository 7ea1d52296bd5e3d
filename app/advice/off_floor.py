"""A library's call that takes far longer than its bytes and FLOPs: what it is, by how much, why, and what to change.

"It is the library's already" is no reason to leave such a call: the library has another kernel for the same values in
another layout, size or form. By evidence alone: the time that a trace measured, the device's floor, and the names of
the kernels that ran. What a remedy saves is what the device's atlas says of the changed call over what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.advice.case import Case
from app.advice.wording import Words, factor_words, times_words
from app.estimate import remedies
from app.estimate.eager_time import operation_times
from app.estimate.facts import ShapeFacts
from app.estimate.range import Range
from app.units import duration
from profiler.hardware import Device
from profiler.region import op_kinds
from profiler.region.graph.operation import Operation

FAR: Mapping[str, float] = {op_kinds.GEMM: 2.0, op_kinds.CONVOLUTION: 10.0, op_kinds.ATTENTION: 2.0}
"""Times its floor from which a call is told of. Of this project's recorded calls on an H100 and an H200 that need 20 µs
or more, 95 % of products of 16-bit numbers in whole rows of 16 bytes are below 1.6 and half of those in other rows
above 3.9; of channels-last images half the convolutions are below 2.7 and three quarters below 6.8; half of attention
without a mask is below 1.9, and half of it with one above 3.1."""
UNMEASURED = 1.25
"""Times further for a device of which only the datasheet's rates are known: the H200's measured rate of products is 0.8
of its datasheet's."""
KERNEL_US = 5.0
"""Added to the floor of each call: what a library's kernel takes at least, whatever it computes."""
LIBRARYS_PART = 0.5
"""Of the region's time, what the library's calls must take: else it is not they that are far from a floor."""
WORTH = 0.9
"""Of the measured time, what a remedy may leave at most to be priced: the atlas is off by as much."""

SCALAR = re.compile(
    r"simt|sgemm|implicit_convolve|scudnn|conv2d_c1|[dw]grad2d_c1|grouped_direct|naive_conv|conv_depthwise|\bconvolve_",
    re.IGNORECASE,
)
TENSOR = re.compile(
    r"tensorop|s1688|s16816|wgmma|hmma|nvjet|tf32|imma|xmma|bf16_s16|h16816|mfma|_MI\d|Cijk_|fmha|flash|sdpa",
    re.IGNORECASE,
)
"""In names of kernels: those that compute on vector units alone, and those on tensor cores, or AMD's matrix cores."""
SIXTEEN_BIT = frozenset({"f16", "bf16"})
MODES = ("padding", "layout", "mask", "precision", "call")
"""Of remedies, as the API has them."""
CHANNELS = 8
"""To which channels of 16-bit images are padded: a pixel's 16 bytes."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change: mode as the API has it, words, code, and the operations as they are then; () for no price.

    assumes: what the trace does not show and the price goes by: where it is otherwise, nothing may be saved.
    only_priced: it is told only where its price says that it saves something.
    """

    mode: str
    short: str
    because: str
    do: str
    call: str
    operations: tuple[Operation, ...] = ()
    assumes: str = ""
    only_priced: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """times: measured over the floor. left: of the region's time with the remedy, None where it cannot be said."""

    times: float
    measured_us: float
    floor_us: float
    without_matrix_units: bool
    remedy: Remedy
    left: Range | None


def finding(case: Case) -> Finding | None:
    """What a region's library calls lack; None where they are near their floor, or nothing was measured.

    It takes the place of leaving the region, and of torch.compile where the remedy is predicted to be as fast.
    """
    shape, facts = case.facts.heaviest, case.facts
    if shape is None or shape.launched is None or case.current is None or not case.workload.observed:
        return None
    if facts.share_predicted:
        return None  # its time is what we expect of such a call: that it is far from its floor says nothing of this one
    calls = tuple(o for o in shape.launched.operations if o.kind in FAR)
    if facts.compiled or facts.by_hand or not calls:
        return None
    now_us = _measured_us(case, shape)
    rest_us = _rest_us(case, shape, calls)
    measured_us = now_us - rest_us
    floor_us = sum(KERNEL_US + call_floor_us(o, case.device) for o in calls)
    heaviest = max(calls, key=lambda o: call_floor_us(o, case.device))
    far = FAR[heaviest.kind] * (1.0 if case.device.ceilings_measured else UNMEASURED)
    if measured_us < LIBRARYS_PART * now_us or measured_us < far * floor_us:
        return None
    names = " ".join(facts.kernel_names)
    scalar = bool(SCALAR.search(names)) and not TENSOR.search(names)
    priced = [(r, _left(case, r, rest_us, now_us)) for r in _remedies(case, calls, scalar)]
    known = [(r, left) for r, left in priced if left is not None]
    priced = [(r, left) for r, left in priced if left is not None or not r.only_priced]
    if not priced:
        return None
    remedy, left = min(known, key=lambda p: p[1].mid) if known else priced[0]
    return Finding(measured_us / floor_us, measured_us, floor_us, scalar, remedy, left)


def call_floor_us(operation: Operation, device: Device) -> float:
    """What the call's bytes and FLOPs take: convolutions of f32 in TF32, as torch comes, products of f32 without.

    Depthwise ones go by the vector units: a sum over a filter's taps alone is no product of matrices.
    """
    moved = sum(t.bytes for t in (*operation.reads, *operation.writes))
    dtype = operation.reads[0].dtype if operation.reads else "f32"
    dtype = "tf32" if dtype == "f32" and operation.kind == op_kinds.CONVOLUTION else dtype
    rate = device.f32_rate if _is_depthwise(operation) else device.matmul_rate(dtype)
    return 1e6 * max(moved / device.copy_rate, operation.flops / rate)


def _is_depthwise(operation: Operation) -> bool:
    """A convolution whose filters each read one of several channels, forward or backward.

    A transposed one from several channels to one has such filters too, and fewer channels of its result.
    """
    backward = "backward" in operation.target
    images = operation.reads[1:3] if backward else operation.reads[:2]
    if operation.kind != op_kinds.CONVOLUTION or len(images) < 2:
        return False
    (image, filters), result = images, operation.reads[0] if backward else operation.writes[0]
    return filters.shape[1] == 1 < image.shape[1] and result.shape[1] == filters.shape[0]


def _measured_us(case: Case, shape: ShapeFacts) -> float:
    """Of one call at the sizes that count most, where the trace has them apart; else of the mean call."""
    assert case.current is not None
    for binding in case.workload.bindings:
        same = tuple(sorted(dict(binding.sizes).items())) == shape.binding
        if same and binding.time_us_per_step is not None and binding.calls_per_step:
            return binding.time_us_per_step / binding.calls_per_step
    return case.current.mid


def _rest_us(case: Case, shape: ShapeFacts, calls: Sequence[Operation]) -> float:
    """What the region's other operations are predicted to take."""
    theirs = {o.name for o in calls}
    return sum(t for name, t in operation_times(shape, case.device, case.rates).items() if name not in theirs)


def _left(case: Case, remedy: Remedy, rest_us: float, now_us: float) -> Range | None:
    """Of the region's time; None where the atlas has no price for it, or one that saves nothing that it can tell."""
    then = remedies.price(remedy.operations, case.device, case.rates)
    if then is None or (rest_us + then.mid) / now_us > WORTH:
        return None
    least = sum(call_floor_us(o, case.device) for o in remedy.operations)
    # A middle below the floor says that the range begins there, not that the call takes the floor's time.
    factor = max(1.0, least / then.low) if then.mid < least else 1.0
    low, mid, high = ((rest_us + max(least, factor * t)) / now_us for t in (then.low, then.mid, then.high))
    return Range(low, mid, 1.0 if remedy.assumes else min(1.0, high))


TUNED = Remedy(
    "call", "let PyTorch time its kernels",
    "hipBLASLt and rocBLAS chose a kernel that is far from what the GPU can do at these sizes",
    "Turn TunableOp on: it times the libraries' kernels once for each size and keeps the fastest",
    "torch.cuda.tunable.enable()  # or PYTORCH_TUNABLEOP_ENABLED=1",
)  # fmt: skip


def _remedies(case: Case, calls: tuple[Operation, ...], scalar: bool) -> Iterator[Remedy]:
    """What may help these calls, what is surest first."""
    yield from _padded_rows(calls)
    if case.device.is_amd and all(o.kind == op_kinds.GEMM for o in calls):
        yield TUNED
    yield from _of_attention(calls)
    yield from _of_convolutions(calls, scalar, AMD if case.device.is_amd else NVIDIA)


def _padded_rows(calls: tuple[Operation, ...]) -> Iterator[Remedy]:
    half = tuple(o for o in calls if o.kind == op_kinds.GEMM and o.reads[0].dtype in SIXTEEN_BIT)
    for where, odd in remedies.odd_sizes(half).items():
        size, padded = max(odd.items())
        sizes = ", ".join(f"{s:,} to {p:,}" for s, p in sorted(odd.items(), reverse=True)[:3])
        do, call, assumes = _padding_words(where, size, padded, sizes)
        in_batch = where == "batch"
        call = _pads_of_factors(half, size, padded) if in_batch else call
        yield Remedy(
            "padding", f"pad {sizes}",
            f"rows of {size:,} elements are no multiple of {remedies.ROW_BYTES} bytes, which the fast kernels need",
            do, call, (remedies.copied_and_resized if in_batch else remedies.resized)(calls, odd), assumes,
            only_priced=in_batch,
        )  # fmt: skip


def _pads_of_factors(calls: Sequence[Operation], size: int, padded: int) -> str:
    """Code that pads both factors of the first batched product with this size, in whichever dimensions have it."""
    pairs = [remedies.factors(o) for o in calls if len(o.writes[0].shape) > 2]
    pair = next(p for p in pairs if any(size in t.shape[-2:] for t in p))
    more = padded - size
    made = []
    for name, tensor in zip("ab", pair, strict=True):
        rows, columns = (more if s == size else 0 for s in tensor.shape[-2:])
        pads = f"0, {columns}" + (f", 0, {rows}" if rows else "")
        made.append(f"F.pad({name}, ({pads}))" if rows or columns else name)
    return f"a, b = {', '.join(made)}  # of torch.matmul(a, b): {size} to {padded}"


MADE_PADDED = "that the activations are made with the padded columns, without a copy"
"""Where an operand is the activations': a copy into padded rows would cost what the product saves, or part of it."""


def _padding_words(where: remedies.Padding, size: int, padded: int, sizes: str) -> tuple[str, str, str]:
    """What to do, the code, and what the price assumes."""
    more = padded - size
    once = f"# once, where the model is built: {size} to {padded}"
    of_64 = f"Pad {sizes}, a multiple of {remedies.PADDED_TO}"
    vocabulary = (
        f"where it is a vocabulary, make embedding and head that large and leave the last {more:,} columns out of the "
        "loss"
    )
    return {
        "rows": (
            f"{of_64}: {vocabulary}; where it is another layer's out_features, leave them out of what follows",
            f"weight = F.pad(weight, (0, 0, 0, {more}))  {once}",
            "",
        ),
        "sum": (
            f"{of_64}, in the weight's rows: {vocabulary}; where it is what a weight stored [in, out] takes in, "
            "let the layer before give as many zeros more",
            f"weight = F.pad(weight, (0, 0, 0, {more}))  {once}",
            MADE_PADDED,
        ),
        "both": (
            f"{of_64}, with zeros, in the last dimension of both factors (in_features): the weight once, the "
            "activations where they are made, by the layer before",
            f"weight = F.pad(weight, (0, {more}))  {once}; the activations likewise, where they are made",
            MADE_PADDED,
        ),
        "columns": (
            f"{of_64}, with zeros, in the weight's last dimension, once: what it gives has as many columns more, which "
            "are zeros to leave out of what follows",
            f"weight = F.pad(weight, (0, {more}))  {once}",
            "",
        ),
        "batch": (
            f"{of_64}, in the sequence or whichever dimension of the activations has it, best where they are made, and "
            "mask or cut off what is added; the price counts a copy of each before each call",
            "",
            "",
        ),
    }[where]  # fmt: skip


def _of_attention(calls: tuple[Operation, ...]) -> Iterator[Remedy]:
    if any(remedies.has_square_mask(o) for o in calls):
        yield Remedy(
            "mask", "say the mask, do not store it",
            "it reads a mask as large as its scores, and computes the scores that the mask hides as well",
            "Where the mask is the causal one, pass is_causal=True instead of it; another mask of positions goes into "
            "FlexAttention's mask_mod, which skips the blocks that it hides",
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # or flex_attention(q, k, v, block_mask=...)",
            remedies.causal(calls) if not any("backward" in o.target for o in calls) else (),
            "that the mask is the causal one",
        )  # fmt: skip
    if any(remedies.has_bias_of_heads(o) for o in calls):
        yield Remedy(
            "mask", "compute the bias, do not store it",
            "it reads a matrix as large as its scores for every head: a bias of positions, as T5's or ALiBi's",
            "Compute it from the positions in FlexAttention's score_mod (where it only hides scores, in its mask_mod), "
            "so that none is stored or read",
            "y = flex_attention(q, k, v, score_mod=bias)  # def bias(score, batch, head, query, key): score + ...",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Libraries:
    """What a vendor's libraries are called, and what its convolutions want. tf32: f32 convolutions run in it."""

    convolutions: str
    products: str
    cores: str
    layout_call: str
    tf32: bool


CHANNELS_LAST = "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)"
NVIDIA = Libraries("cuDNN", "cuBLAS", "tensor-core", CHANNELS_LAST, tf32=True)
AMD = Libraries(
    "MIOpen",
    "hipBLASLt or rocBLAS",
    "matrix-core",
    f"{CHANNELS_LAST}  # with PYTORCH_MIOPEN_SUGGEST_NHWC=1",
    tf32=False,
)
TRIES_KERNELS = "torch.backends.cudnn.benchmark = True"
TF32_ON = "torch.backends.cudnn.allow_tf32 = True"
WHOLE_MODEL = frozenset({NVIDIA.layout_call, AMD.layout_call, TRIES_KERNELS, TF32_ON, TUNED.call})
"""Code that changes the whole model or process at once: done for one region, it is done for all."""


def _of_convolutions(calls: tuple[Operation, ...], scalar: bool, by: Libraries) -> Iterator[Remedy]:
    convolutions = tuple(o for o in calls if o.kind == op_kinds.CONVOLUTION)
    if not convolutions:
        return
    if all(remedies.is_of_patches(o) for o in convolutions):
        yield Remedy(
            "call", "a matrix product of patches",
            "its filter is as large as its stride: each pixel is read once, which is a matrix product",
            f"Put each patch into a row and multiply: the same numbers by {by.products}",
            "y = F.linear(patches, w.flatten(1), b)  # patches: [images, places, channels x taps], by view and permute",
            remedies.as_products(calls),
        )  # fmt: skip
    if any(remedies.is_channels_first(o) for o in convolutions):
        yield Remedy(
            "layout", "channels_last",
            f"its images are not channels-last, the layout of {by.convolutions}'s {by.cores} kernels",
            "Keep model and images channels-last",
            by.layout_call, remedies.channels_last(calls),
        )  # fmt: skip
    few = _few_channels(convolutions)
    if few:
        padded = -(-few // CHANNELS) * CHANNELS
        yield Remedy(
            "padding", f"pad {few} channels to {padded}",
            f"{few} channels are no multiple of {CHANNELS}, which {by.convolutions}'s {by.cores} kernels load at once",
            f"Pad the images' and the filters' channels from {few} to {padded} with zeros (the price counts the "
            "images' copy)",
            f"x, w = F.pad(x, (0, 0, 0, 0, 0, {padded - few})), F.pad(w, (0, 0, 0, 0, 0, {padded - few}))",
            remedies.with_channels(calls, few, padded),
        )  # fmt: skip
    if by.tf32 and scalar and any(o.reads[0].dtype == "f32" for o in convolutions):
        yield Remedy(
            "precision", "TF32 or 16 bits",
            "its kernels are f32's on the vector units, although convolutions run in TF32 as torch comes",
            "See that nothing sets torch.backends.cudnn.allow_tf32 to False, or run it under autocast",
            TF32_ON,
        )  # fmt: skip
    yield Remedy(
        "call", f"let {by.convolutions} try its kernels",
        f"{by.convolutions} chose a kernel that is far from what the GPU can do",
        f"Let {by.convolutions} time its kernels for these sizes; where that changes nothing, the same in 16 bits, or "
        "another call",
        TRIES_KERNELS,
    )  # fmt: skip


def _few_channels(convolutions: Sequence[Operation]) -> int:
    """Channels of 16-bit images that are no multiple of what is loaded at once; 0 for none, and for one filter each."""
    for operation in convolutions:
        if "backward" in operation.target or operation.reads[0].dtype not in SIXTEEN_BIT:
            continue
        image, filters = operation.reads[:2]
        if image.shape[1] == filters.shape[1] and image.shape[1] % CHANNELS:
            return image.shape[1]
    return 0


def words(case: Case, told: Finding, region: Range | None) -> Words:
    """Headline, action and code."""
    remedy = told.remedy
    cores = "matrix cores" if case.device.is_amd else "tensor cores"
    units = f", without {cores}" if told.without_matrix_units else ""
    unknown = "" if told.left else " What it saves cannot be said: nothing like it was measured."
    unknown = f" Predicted on the assumption {remedy.assumes}." if told.left and remedy.assumes else unknown
    headline = (
        f"{case.facts.title} at {factor_words(told.times)} times its floor{units}: {remedy.short}{times_words(region)}"
    )
    action = (
        f"{remedy.do}. It takes {duration(told.measured_us)} where its bytes and FLOPs need "
        f"{duration(told.floor_us)}: {remedy.because}.{unknown}"
    )
    return Words(headline, action, remedy.call, ())
