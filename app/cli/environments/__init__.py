"""Other Python environments, whose torch commands ask: by name, and compared with this one."""
