"""Workspaces as fsspec file systems, with the extra `space-sandbox[fsspec]`: `sandbox+tree://`, `sandbox+task://`."""
