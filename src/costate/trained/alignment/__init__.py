"""How far the memory of a trained policy is the co-state: what it is compared with, and how."""
