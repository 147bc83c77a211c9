"""Receipts of verdicts: in-toto statements in DSSE envelopes (docs/receipts.md)."""
