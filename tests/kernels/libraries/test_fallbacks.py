"""The list of what Inductor leaves to aten is that of the torch that is installed."""

from __future__ import annotations

import inspect
import re

import torch

from kernels.libraries.fallbacks import ALWAYS, BY_SIZE, TORCH, UNLOWERED


def test_the_lists_are_those_of_the_release_they_name() -> None:
    from torch._inductor import lowering
    from torch._inductor.decomposition import decompositions

    always = {str(f).split(".")[1] for f in lowering.fallbacks if str(f).startswith("aten.")}
    written = re.findall(
        r"fallback_handler\(\s*aten\.(\w+)(?:\.\w+)?,\s*add_to_fallback_set=False", inspect.getsource(lowering)
    )
    if torch.__version__.startswith(f"{TORCH}."):
        assert always == ALWAYS
        assert set(written) == BY_SIZE
    else:  # another release moves a few; more than a tenth would make the list another torch's
        assert len(always ^ ALWAYS) <= len(ALWAYS) // 10
    for name in UNLOWERED:
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, o) for o in packet.overloads()]
        assert not any(o in lowering.lowerings or o in decompositions for o in overloads)
