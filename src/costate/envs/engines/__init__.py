"""Engines that run tasks, each the only file that imports its simulator."""
