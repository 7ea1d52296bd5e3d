"""Commands that ask servers of models."""
