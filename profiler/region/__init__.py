"""Regions: model, text, graph, patterns, cost, mining."""
