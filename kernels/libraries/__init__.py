"""What libraries cover: one file a package, entries of data with a call."""
