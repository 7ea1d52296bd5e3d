"""The device atlas: what a GPU was measured to do, and times of operations and kernels read off between its points."""
