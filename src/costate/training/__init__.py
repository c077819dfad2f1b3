"""Training: the host loop around compiled iterations, for one seed or several together."""
