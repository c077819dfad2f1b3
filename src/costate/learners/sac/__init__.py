"""Recurrent soft actor-critic with the co-state loss."""
