"""Many hosts: what the fleet is made of, as plain data; what it would do at a thousand GPUs."""
