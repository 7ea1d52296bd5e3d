"""From aten calls to expressions in Triton."""
