"""Policies: what a guest may do and use, and which paths are allowed. Pure models and rules."""
