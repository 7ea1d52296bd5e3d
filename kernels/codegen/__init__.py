"""From a fused group of aten operations to the text of one Triton kernel."""
