"""The kernels that Inductor itself would emit, with or without a GPU."""
