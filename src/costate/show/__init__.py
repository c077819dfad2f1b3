"""Show a policy in a browser or in a film: the robot, what its sensors read, and its internal quantities."""
