"""Train an NC-GRU on a half-blind cart-pole for a few seconds, then evaluate it with more blackouts."""

import sys

import costate

out = sys.argv[1] if len(sys.argv) > 1 else "runs/example"
run = costate.train("CartpoleSwingup", out=out, steps=64_000, dropout=0.5, overwrite=True, progress=False)
for dropout in (0.5, 0.75):
    result, path = costate.evaluate(run, dropout=dropout, episodes=10)
    print(f"{dropout:.0%} blackout: mean return {result.mean:.1f}, median {result.median:.1f}  ({path.name})")
