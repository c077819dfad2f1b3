"""Looking at a policy: the robot in its scene, what its sensors see, and what goes on inside; in a browser or as a film."""
