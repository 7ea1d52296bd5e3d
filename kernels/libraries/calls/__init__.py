"""The calls themselves, one file a package. Each imports its package when it is called: in a child, never before."""
