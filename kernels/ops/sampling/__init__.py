"""Kernels that draw from rows of logits."""
