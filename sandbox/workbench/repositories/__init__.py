"""Repositories: the cache clones, and the facts, checks and trust that belong to their commits."""
