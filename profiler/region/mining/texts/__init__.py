"""How a call's arguments are said, and parts that are written in a way of their own: optimizers, compiled kernels."""
