"""One spelling for every computation: a graph's values in canonical form, and patterns held against them."""
