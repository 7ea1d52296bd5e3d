"""Kernels whose results are numbers of 8 bits and their scales."""
