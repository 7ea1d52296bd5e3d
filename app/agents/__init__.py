"""Answers for coding agents: short JSON, an MCP server on stdio, and the skill that says when to use them."""
