"""What torch.compile would make of a region, from Inductor itself, with or without a GPU."""
