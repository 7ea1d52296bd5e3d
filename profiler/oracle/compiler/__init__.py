"""Kernels compiled for GPUs that are not here, and what their machine code says."""
