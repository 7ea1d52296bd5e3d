"""Kernels over windows of planes."""
