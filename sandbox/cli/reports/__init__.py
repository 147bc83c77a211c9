"""The result of `sandbox run` as files that other programs read."""
