"""One file to take home: a kernel with all that it needs, its test and its benchmark."""
