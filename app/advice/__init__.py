"""Rule, estimate, report: pure functions of data."""
