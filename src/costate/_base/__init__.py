"""What every other package may use: errors, types, registries, files, progress."""
