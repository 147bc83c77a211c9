"""Approvals: what a person is asked about an agent's call, and what they decided."""
