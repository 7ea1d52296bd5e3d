"""How the scales of mxfp8, mxfp4 and nvfp4 lie in memory."""

from __future__ import annotations

import torch

SCALE_ROWS = 128
"""Rows of a block in which cuBLAS and FlashInfer keep the scales of block formats."""


def padded_scales(scales: torch.Tensor, rows: int) -> torch.Tensor:
    """One dimension of scales as bytes [rows padded to 128, scales a row padded to 4]: whole blocks of 128 by 4."""
    padded = -(-rows // SCALE_ROWS) * SCALE_ROWS
    return scales.view(torch.uint8).reshape(padded, -1)
