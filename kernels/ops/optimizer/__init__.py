"""Kernels that update the parameters of a model."""
