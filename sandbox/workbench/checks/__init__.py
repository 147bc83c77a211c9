"""Checks: run them in a task or in a clean room, keep their verdicts, and ask whether a tree may leave this host."""
