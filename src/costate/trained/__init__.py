"""Trained policies: evaluation, robustness, alignment, verification, export."""
