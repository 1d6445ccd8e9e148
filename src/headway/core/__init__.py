"""The rules of Headway: pure functions and frozen values. No clock, no I/O, no randomness, no await."""
