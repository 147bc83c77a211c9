"""Checks: run one in a guest, record its output, decide its verdict from facts, and report."""
