"""What to do about a step: options for the whole of it and the regions' advice in one list."""
