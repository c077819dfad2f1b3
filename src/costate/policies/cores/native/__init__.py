"""Loops over time as machine code of our own, where there is a C compiler to make it; everything works without."""
