"""Inputs that came from fuzzing, and the targets that they are for."""
