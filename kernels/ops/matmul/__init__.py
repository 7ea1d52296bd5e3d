"""Matrix products, plain and with what follows them in the same kernel."""
