"""Inputs, correctness, timing, and the processes they run in."""
