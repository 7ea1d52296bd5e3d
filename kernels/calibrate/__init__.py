"""What this host's GPU does, family by family: the points of a device's atlas."""
