"""Loops over time in C, compiled where there is a C compiler. Everything works without."""
