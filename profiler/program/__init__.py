"""A program recorded without a GPU and without its weights: which operations a step of it runs, and where."""
