"""Other people's measurements: per-shape tables that they published, and what the product's estimate says of them."""
