"""A trace as the API tells it: figures, regions with advice, speedup, timeline, breakdown, ranks."""
