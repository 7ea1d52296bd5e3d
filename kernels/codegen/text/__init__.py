"""From the plan of a kernel to its text, and the text as a module."""
