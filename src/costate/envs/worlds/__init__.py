"""Worlds: physics, observations and rewards, in JAX or around a user's MJCF file."""
