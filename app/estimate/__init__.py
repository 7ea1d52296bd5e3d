"""Predicted times of every candidate, from bytes, FLOPs and launches and the rates measured on a device."""
