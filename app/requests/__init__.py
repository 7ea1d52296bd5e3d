"""What a user asks for, checked and turned into jobs."""
