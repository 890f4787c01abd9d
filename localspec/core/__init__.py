"""Pure numpy: drafts, laws, acceptance. Knows no model, no clock, no file, no global randomness."""
