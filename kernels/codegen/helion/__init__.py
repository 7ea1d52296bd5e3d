"""Helion source written from a region: `helion:generated`.

Helion (BSD, PyTorch's) writes the loads, masks, tiles and autotuning that Triton asks for by hand, so the source is the
region's own operations on tiles. `forms` says which regions have one, `source` writes it, `run` loads and calls it.
"""
