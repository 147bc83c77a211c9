"""Transports: move bytes between an MCP client and the server, over pipes and over HTTP."""
