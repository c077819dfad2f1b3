"""Train an NC-GRU on a half-blind cart-pole for a few seconds, then evaluate it with more blackouts."""

import sys

import costate

config = costate.RunConfig("CartpoleSwingup", steps=64_000, sensors=costate.SensorConfig(0.5))
outcome = costate.train(config, sys.argv[1] if len(sys.argv) > 1 else "runs/example", overwrite=True)
for dropout in (0.5, 0.75):
    result, path = costate.evaluate(outcome.run, dropout=dropout, episodes=10)
    print(f"{dropout:.0%} blackout: mean return {result.mean:.1f}, median {result.median:.1f}  ({path.name})")
