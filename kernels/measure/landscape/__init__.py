"""Autotune landscapes: one kernel's time over its tiles, warps and stages."""
