"""The mathematics as exercises on a toy model."""
