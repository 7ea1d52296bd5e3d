"""Counters by which programs that share a result learn how many of them have handed in their part."""

import torch

_tickets: dict[tuple[torch.device, int, int], torch.Tensor] = {}


def tickets(device: torch.device, parts: int, results: int) -> torch.Tensor:
    """int64, one a result: zeros, or what earlier launches of this stream with as many parts left: multiples of them.

    Every launch that is given them adds `parts` to each it uses, so that nothing need be cleared. Two streams never
    share one, nor does a captured graph, which may be replayed on any stream. A stream has to outlive its launches: one
    that is made anew behind its address would share its counters; and a launch that dies leaves them as no multiple.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.zeros(results, dtype=torch.int64, device=device)
    key = (device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0, parts)
    held = _tickets.get(key)
    if held is None or held.numel() < results:
        held = _tickets[key] = torch.zeros(results, dtype=torch.int64, device=device)
    return held
