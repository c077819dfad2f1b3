"""Recurrent policies whose hidden state is trained to be the co-state of optimal control."""
