"""The server held to /openapi.json."""
