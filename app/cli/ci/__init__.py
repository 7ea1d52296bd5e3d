"""Commands of a build: the check, its comment, the history of checks, and what an upgrade changed."""
