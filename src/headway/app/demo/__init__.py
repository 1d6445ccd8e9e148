"""The demonstration: a small pipeline, faults before the user's eyes, and an account that is checked, not claimed."""
