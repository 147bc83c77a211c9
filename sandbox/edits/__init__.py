"""Edits: patches and replacements, read strictly and applied only to content that the writer has seen."""
