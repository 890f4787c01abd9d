"""The benchmark: runs, their rows and what was measured on what."""
