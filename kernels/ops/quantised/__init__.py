"""Products of numbers of one byte or half a byte, with their scales."""
