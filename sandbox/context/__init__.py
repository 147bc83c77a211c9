"""Orientation in a repository: the envelope (its files) and the map (its most important symbols)."""
