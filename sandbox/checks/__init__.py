"""Checks: run one in a guest, keep its output, judge it by facts, report."""
