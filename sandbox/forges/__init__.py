"""Adapters to the forges: one protocol, implemented for GitHub and GitLab."""
