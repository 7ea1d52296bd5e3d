"""Recording from within a training library: one module each, which imports that library alone."""
