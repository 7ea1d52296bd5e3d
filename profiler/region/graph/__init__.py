"""A region as a canonical aten graph: lowering, traffic, fusion, cost, patterns."""
