"""What can be launched: candidates, generated kernels, libraries, measurement."""
