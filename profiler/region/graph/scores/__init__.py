"""Attention as code of one score: what changes it, what hides it, and where in the graph that is."""
