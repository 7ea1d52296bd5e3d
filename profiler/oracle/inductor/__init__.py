"""Inductor asked for its kernels, with or without a GPU."""
