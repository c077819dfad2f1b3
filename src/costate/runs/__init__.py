"""Files that a run leaves on disk, and everything else that concerns its folder."""
