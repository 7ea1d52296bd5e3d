"""A trace's step cut into regions, each written as text."""
