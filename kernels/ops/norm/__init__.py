"""Normalisations: forward and backward each have one family of kernels and one launcher, which the operations share."""
