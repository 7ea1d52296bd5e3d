"""What torch.compile would make of a region: asked of Inductor itself, with or without a GPU."""
