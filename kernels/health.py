"""Whether a GPU computes, asked in a process of its own: within seconds, and hardly felt by a measurement that runs."""

from __future__ import annotations

SIZE = 256
"""Of the square product: long enough for every multiprocessor to run, short enough to disturb nobody."""


def ask(expected: str | None) -> str:
    """What is wrong with GPU 0, "" where nothing is. expected: the name that it had.

    Raises what CUDA raises where the driver refuses; a hang is the caller's to end.
    """
    import torch

    if not torch.cuda.is_available():
        return "torch finds no GPU any more"
    name = torch.cuda.get_device_name(0)
    if expected is not None and name != expected:
        return f"there is {name} where {expected} was"
    a = torch.arange(SIZE * SIZE, device="cuda", dtype=torch.float64).reshape(SIZE, SIZE) % 7
    product = (a @ a.T).cpu()
    wanted = a.cpu() @ a.cpu().T  # whole numbers below 2**53: exact in any order
    return "" if torch.equal(product, wanted) else "a product of two matrices came out wrong"
