"""What an agent is told when a tool has no answer."""

from __future__ import annotations


class AgentError(Exception):
    """No answer, and why: for the agent to read."""
