"""Servers of models that record themselves: told to, waited for, and what they wrote."""
