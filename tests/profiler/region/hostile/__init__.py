"""Texts that want to break the reader, exhaust the host or run code."""
