"""From the graph of a region to one that can be generated: parts in the place of wholes, cuts, groups, halves."""
