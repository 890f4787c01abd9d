"""What would pay on this machine, and the same setup for other engines."""
