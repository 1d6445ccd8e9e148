"""Ledger and broker in SQLite files: the embedded default, for one host."""
