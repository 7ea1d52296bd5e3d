"""A region's pages: advice, costs, evidence; edit, validate, cancel."""
