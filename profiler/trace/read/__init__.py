"""Bytes of a trace file to columns."""
