"""Draft heads: finding, checking and loading them, and converting published checkpoints."""
