"""Sums over axes, and the largest elements of rows."""
