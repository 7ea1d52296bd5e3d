"""The processes that candidates run in: starting, talking, limits."""
