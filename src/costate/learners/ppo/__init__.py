"""Proximal policy optimisation with the co-state loss, as in the paper."""
