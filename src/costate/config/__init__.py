"""A run as data: its config, presets, names, and what older files mean."""
