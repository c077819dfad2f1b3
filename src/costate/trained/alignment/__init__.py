"""Alignment: how similar the memory of a trained policy is to the co-state."""
