"""Foundations that every other package may use: errors, types, registries, files and progress."""
