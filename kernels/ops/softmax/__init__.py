"""Softmax over any axis, its backward, and the loss that is a softmax and a logarithm."""
