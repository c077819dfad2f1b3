"""Optimal control with no learning in it: what the hidden states of policies are compared with."""
