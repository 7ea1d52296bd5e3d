"""Traces: bytes to columns, links, steps, notes."""
