"""Rewrites of a region's graph to library calls."""
