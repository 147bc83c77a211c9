"""Checks: run them in a task or in a clean room, cache their verdicts, decide whether a tree may leave this host."""
