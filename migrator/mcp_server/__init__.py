"""A server for coding agents, by the Model Context Protocol (docs/agents.md)."""
