"""What a run leaves on disk, and what else has to do with its folder."""
