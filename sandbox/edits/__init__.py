"""Edits: patches and replacements, parsed strictly and applied only to content that the caller has read."""
