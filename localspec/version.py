"""The version of this package, readable without installing it and without importing anything heavy."""

__version__ = "0.1.0"
