"""History: what a check measured, run after run, and why it changed. Pure functions of entries."""
