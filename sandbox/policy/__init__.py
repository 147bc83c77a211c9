"""Policies: what a guest may do and use, and which paths may be named. Pure models and rules."""
