"""The agent surface: an MCP server over the use-cases, gated by presets and approvals."""
