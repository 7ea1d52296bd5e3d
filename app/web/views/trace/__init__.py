"""The parts of a trace's page, each what it shows."""
