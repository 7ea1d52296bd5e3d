"""What a graph shows of the operations that libraries and our kernels compute."""
