"""The server around the routes: security, limits, caching, metrics, health, retention."""
