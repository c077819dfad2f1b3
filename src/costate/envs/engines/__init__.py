"""Engines that run tasks. Each file is the only one that imports its simulator."""
