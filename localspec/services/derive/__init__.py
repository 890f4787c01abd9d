"""A draft made from its verifier without training, and what it is worth."""
