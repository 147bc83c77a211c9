"""Repositories in directories of this host: read by us, so that git reads no file that they choose (ADR 0045)."""
