"""What the program did: traces, regions, hardware. Imports nothing of kernels or app."""
