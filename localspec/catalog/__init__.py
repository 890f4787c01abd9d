"""The registry, references, model files and where they come from. Imports neither engine nor core."""
