"""Attention, forward, on Hopper alone: loads, products and exponentials are different warps' work, written in Gluon.

One program stays on each multiprocessor and takes tile after tile. One of its warps asks the copy engine (TMA) for
queries, keys and values and does nothing else; two groups of four warps have 64 queries each. Such a group asks for the
products of the next block of keys and for those of this block's weights with the values, and computes the next block's
exponentials while the matrix units are at the latter (FlashAttention 3; Shah et al., 2024). The loads of the next tile
run during the last products of this one.

Who may touch a buffer is told by barriers in shared memory: `full`, completed by the bytes that arrive, `free`, by the
groups that have read. Buffers are a ring: of n, block number u is in slot u % n, in phase u // n of that slot's
barriers.

What is computed, and the log-sum-exp, are those of `flash_attention`, for 16-bit operands without bias, cap or window.
Which calls get it, and in which order tiles are taken, `hopper_variants` says. A thread of some variants has a few
bytes too many for its registers: they spill, outside of the loop over keys.

On an H200 (Triton 3.6, pairs with cuDNN in turn), causal, bf16, 32 heads of 128, 4096 long: 835 us of 4 batches where
cuDNN takes 912 and Triton's own variants 1067, 422 of 2 where it takes 475. Of 16 batches of 16 heads of 64, 1024 long,
without a mask: 170 us, cuDNN's 163. Tried: three groups of 64 queries to blocks of 64 keys, which read a third less of
keys and values (905, 460 and 183 us); three buffers of keys and two of values (843 to 861 us).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

GROUPS = gl.constexpr(2)
BM = gl.constexpr(128)
"""Queries of a tile: 64 of each group, the rows of one instruction of the matrix units."""


@gluon.jit
def keys_of(block, width, BN: gl.constexpr, CAUSAL: gl.constexpr):
    """Blocks of keys that any of these queries sees, and how many all of them see wholly: all but the last, or all."""
    gl.static_assert(BN % BM == 0)
    hi = width
    whole = width // BN
    if CAUSAL:
        hi = gl.minimum(width, (block + 1) * BM)
        whole = gl.minimum(whole, (block * BM + 1) // BN)
    return gl.cdiv(hi, BN), whole


@gluon.jit
def load_tiles(
    sources, BN: gl.constexpr, D: gl.constexpr, KEYS: gl.constexpr, VALUES: gl.constexpr, CAUSAL: gl.constexpr
):  # fmt: skip
    """One warp's work: ask for every tile's queries, then for its blocks of keys and values, the last one first."""
    q, k, v, queries, keys, values, bars, plan, longest, heads, all_heads, sharing, width = sources
    q_full, q_free, k_full, k_free, v_full, v_free = bars
    mine = plan + gl.program_id(0) * longest
    entry = gl.load(mine + 1)
    use = 0
    for turn in range(gl.load(mine)):
        block = entry // all_heads
        z = entry % all_heads
        entry = gl.load(mine + turn + 2)  # of the next tile, long before it is needed
        batch = z // heads
        head = z % heads
        near = head // sharing
        count, _ = keys_of(block, width, BN, CAUSAL)
        for g in gl.static_range(GROUPS):
            hopper.mbarrier.wait(q_free.index(g), (turn & 1) ^ 1)
            hopper.mbarrier.expect(q_full.index(g), q.block_type.nbytes)
            hopper.tma.async_copy_global_to_shared(
                q, [batch, head, block * BM + g * 64, 0], q_full.index(g), queries.index(g)
            )  # fmt: skip
        for j in range(count + 1):
            if j < count:
                slot = (use + j) % KEYS
                hopper.mbarrier.wait(k_free.index(slot), ((use + j) // KEYS & 1) ^ 1)
                hopper.mbarrier.expect(k_full.index(slot), k.block_type.nbytes)
                hopper.tma.async_copy_global_to_shared(
                    k, [batch, near, (count - 1 - j) * BN, 0], k_full.index(slot), keys.index(slot)
                )  # fmt: skip
            if j > 0:
                slot = (use + j - 1) % VALUES
                hopper.mbarrier.wait(v_free.index(slot), ((use + j - 1) // VALUES & 1) ^ 1)
                hopper.mbarrier.expect(v_full.index(slot), v.block_type.nbytes)
                hopper.tma.async_copy_global_to_shared(
                    v, [batch, near, (count - j) * BN, 0], v_full.index(slot), values.index(slot)
                )  # fmt: skip
        use += count


@gluon.jit
def weights(
    s, top, total, rows, n, width, factor, SCORES: gl.constexpr, BN: gl.constexpr, CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """exp2(factor * s - top) of a block of scores, by how much earlier ones shrink, the new top, and the new sums."""
    if MASKED:
        cols = n * BN + gl.arange(0, BN, layout=gl.SliceLayout(0, SCORES))
        keep = (cols < width)[None, :]
        if CAUSAL:
            keep = keep & (cols[None, :] <= rows[:, None])
        s = gl.where(keep, s, float("-inf"))
    larger = gl.maximum(top, gl.max(s, 1) * factor)
    at = larger
    if MASKED:
        at = gl.where(larger == float("-inf"), 0.0, larger)  # a row that has seen nothing yet
    p = gl.exp2(s * factor - at[:, None])
    shrink = gl.exp2(top - at)
    return p, shrink, larger, total * shrink + gl.sum(p, 1)


@gluon.jit
def step(
    acc, p, top, total, rows, n, use, steps, width, factor, queries, keys, values, bars, turns, GROUP: gl.constexpr,
    BN: gl.constexpr, D: gl.constexpr, KEYS: gl.constexpr, VALUES: gl.constexpr, SCORES: gl.constexpr,
    RESULTS: gl.constexpr, WEIGHTS: gl.constexpr, CAUSAL: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """Add the block before (its weights are p) to acc while the weights of block n, use number `use`, are computed."""
    _, _, k_full, k_free, v_full, v_free = bars
    slot = use % KEYS
    before = (use - 1) % VALUES
    hopper.mbarrier.wait(k_full.index(slot), use // KEYS & 1)
    if TURNS:
        hopper.mbarrier.wait(turns.index(GROUP), steps & 1)
    s = hopper.warpgroup_mma(
        queries.index(GROUP).reshape([64, D]), keys.index(slot).reshape([BN, D]).permute((1, 0)),
        gl.zeros([64, BN], gl.float32, layout=SCORES), use_acc=False, is_async=True,
    )  # fmt: skip
    # Narrowed here, while the matrix units are at the scores: halves that are carried round a loop are swapped twice.
    narrow = gl.convert_layout(p.to(values.dtype), WEIGHTS)
    acc = hopper.warpgroup_mma(narrow, values.index(before).reshape([BN, D]), acc, is_async=True)
    if TURNS:
        hopper.mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)
    s = hopper.warpgroup_mma_wait(1, deps=[s])
    hopper.mbarrier.arrive(k_free.index(slot), count=1)
    p, shrink, top, total = weights(s, top, total, rows, n, width, factor, SCORES, BN, CAUSAL, False)
    # Here, where it has long come: a loop of its own, beyond which ptxas does not put the exponentials off.
    hopper.mbarrier.wait(v_full.index(use % VALUES), use // VALUES & 1)
    acc = hopper.warpgroup_mma_wait(0, deps=[acc, narrow])[0]
    hopper.mbarrier.arrive(v_free.index(before), count=1)
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, RESULTS))[:, None]
    return acc, p, top, total


@gluon.jit
def attend(
    shared, GROUP: gl.constexpr, BN: gl.constexpr, D: gl.constexpr, KEYS: gl.constexpr, VALUES: gl.constexpr,
    CAUSAL: gl.constexpr, WHOLE: gl.constexpr, LSE: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """A warp group's work: 64 queries of every tile."""
    o, lse, queries, keys, values, results, bars, turns, plan, longest, heads, all_heads, height, width, factor = shared
    q_full, q_free, k_full, k_free, v_full, v_free = bars
    MASKED: gl.constexpr = CAUSAL or not WHOLE
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    RESULTS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, RESULTS, 2)
    mine = plan + gl.program_id(0) * longest
    entry = gl.load(mine + 1)
    use = 0
    if TURNS and GROUP == GROUPS - 1:
        hopper.mbarrier.arrive(turns.index(0), count=1)
    for turn in range(gl.load(mine)):
        block = entry // all_heads
        z = entry % all_heads
        entry = gl.load(mine + turn + 2)  # of the next tile, long before it is needed
        count, whole = keys_of(block, width, BN, CAUSAL)
        rows = block * BM + GROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
        acc = gl.zeros([64, D], gl.float32, layout=RESULTS)
        total = gl.zeros([64], gl.float32, layout=gl.SliceLayout(1, SCORES))
        top = gl.full([64], float("-inf"), gl.float32, layout=gl.SliceLayout(1, SCORES))

        hopper.mbarrier.wait(q_full.index(GROUP), turn & 1)
        hopper.mbarrier.wait(k_full.index(use % KEYS), use // KEYS & 1)
        s = hopper.warpgroup_mma(
            queries.index(GROUP).reshape([64, D]), keys.index(use % KEYS).reshape([BN, D]).permute((1, 0)),
            gl.zeros([64, BN], gl.float32, layout=SCORES), use_acc=False, is_async=True,
        )  # fmt: skip
        s = hopper.warpgroup_mma_wait(0, deps=[s])
        hopper.mbarrier.arrive(k_free.index(use % KEYS), count=1)
        p, _, top, total = weights(s, top, total, rows, count - 1, width, factor, SCORES, BN, CAUSAL, MASKED)
        hopper.mbarrier.wait(v_full.index(use % VALUES), use // VALUES & 1)
        # From 1: all blocks but the last are seen wholly. Of a start that it knows ptxas spills 220 bytes.
        for j in range(count - gl.minimum(whole, count - 1), count):
            acc, p, top, total = step(
                acc, p, top, total, rows, count - 1 - j, use + j, use - turn + j - 1, width, factor, queries, keys,
                values, bars, turns, GROUP, BN, D, KEYS, VALUES, SCORES, RESULTS, WEIGHTS, CAUSAL, TURNS,
            )  # fmt: skip
        hopper.mbarrier.arrive(q_free.index(GROUP), count=1)
        use += count
        last = (use - 1) % VALUES
        narrow = gl.convert_layout(p.to(o.dtype), WEIGHTS)
        acc = hopper.warpgroup_mma(narrow, values.index(last).reshape([BN, D]), acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=[acc, narrow])[0]
        hopper.mbarrier.arrive(v_free.index(last), count=1)

        if LSE:
            gl.store(
                lse + gl.cast(z, gl.int64) * height + rows, (top + gl.log2(total)) * 0.6931471805599453,
                mask=rows < height,
            )  # fmt: skip
        acc = acc * gl.convert_layout(1.0 / total, gl.SliceLayout(1, RESULTS))[:, None]
        result = results.index(GROUP)
        hopper.tma.store_wait(0)  # of the tile before
        result.reshape([64, D]).store(acc.to(o.dtype))
        hopper.fence_async_shared()
        hopper.tma.async_copy_shared_to_global(o, [z // heads, z % heads, block * BM + GROUP * 64, 0], result)
    hopper.tma.store_wait(0)


@gluon.jit(do_not_specialize=["longest", "heads", "all_heads", "sharing", "height", "width"])
def flash_attention_hopper_kernel(
    q, k, v, o, lse, plan, longest, heads, all_heads, sharing, height, width, factor, D: gl.constexpr,
    BN: gl.constexpr, KEYS: gl.constexpr, VALUES: gl.constexpr, CAUSAL: gl.constexpr, WHOLE: gl.constexpr,
    LSE: gl.constexpr, TURNS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Tiles of BM queries. q, k, v, o: descriptors of [batch, heads, rows, D]. WHOLE: BN divides the keys.

    plan: for each program `longest` numbers: how many tiles it takes, and these, block * all_heads + head.
    factor: the scale, above 0, times log2(e). TURNS: the groups ask for products one after the other, so that one's
    exponentials run during another's products. REGISTERS: of a thread that computes.
    """
    queries = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 1, 64, D], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [KEYS, 1, 1, BN, D], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [VALUES, 1, 1, BN, D], v.layout)
    results = gl.allocate_shared_memory(o.dtype, [GROUPS, 1, 1, 64, D], o.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], hopper.mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], hopper.mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], hopper.mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [KEYS, 1], hopper.mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [KEYS, 1], hopper.mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [VALUES, 1], hopper.mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [VALUES, 1], hopper.mbarrier.MBarrierLayout())
    for g in gl.static_range(GROUPS):
        hopper.mbarrier.init(q_full.index(g), count=1)
        hopper.mbarrier.init(q_free.index(g), count=1)
        hopper.mbarrier.init(turns.index(g), count=1)
    for i in gl.static_range(KEYS):
        hopper.mbarrier.init(k_full.index(i), count=1)
        hopper.mbarrier.init(k_free.index(i), count=GROUPS)
    for i in gl.static_range(VALUES):
        hopper.mbarrier.init(v_full.index(i), count=1)
        hopper.mbarrier.init(v_free.index(i), count=GROUPS)
    bars = (q_full, q_free, k_full, k_free, v_full, v_free)
    sources = (q, k, v, queries, keys, values, bars, plan, longest, heads, all_heads, sharing, width)
    shared = (
        o, lse, queries, keys, values, results, bars, turns, plan, longest, heads, all_heads, height, width, factor
    )  # fmt: skip
    gl.warp_specialize(
        [
            (attend, (shared, 0, BN, D, KEYS, VALUES, CAUSAL, WHOLE, LSE, TURNS)),
            (attend, (shared, 1, BN, D, KEYS, VALUES, CAUSAL, WHOLE, LSE, TURNS)),
            (load_tiles, (sources, BN, D, KEYS, VALUES, CAUSAL)),
        ],
        [4, 1], [REGISTERS, 24],
    )  # fmt: skip
