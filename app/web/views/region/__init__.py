"""What the page of a region shows."""
