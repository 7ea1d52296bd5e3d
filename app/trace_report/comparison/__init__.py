"""Two traces compared: their parts paired, and whether both do the same work."""
