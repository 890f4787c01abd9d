"""The harness: comparisons with other programs, prompt sets, dated results. Not part of the installed package."""
