"""Worlds: physics, observations and rewards, in JAX or from a user's MJCF file."""
