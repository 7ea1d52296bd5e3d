"""A module without a trace: its recorded step, priced for a device and laid out as a trace that is predicted."""
