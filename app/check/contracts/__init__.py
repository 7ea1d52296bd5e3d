"""Fusion contracts: what torch.compile is to make of a region, a module or a trace's regions, asked without a GPU."""
