"""PPO as a registered learner: its settings, and its answers to the rest of the library."""

import dataclasses
from collections.abc import Mapping

from costate._base.types import Array, Int
from costate.learners.base import LEARNERS, Setup, Variant
from costate.learners.ppo.checks import check_ppo
from costate.learners.ppo.flops import flops_per_env_step
from costate.learners.ppo.learner import PPOLearner
from costate.learners.ppo.presets import presets
from costate.learners.ppo.schedules import learning_rate
from costate.learners.ppo.settings import PPOSettings
from costate.policies.costate_loss import costate_scale


@LEARNERS.register("ppo")
@dataclasses.dataclass(frozen=True)
class PPOConfig(PPOSettings):
    """Settings of PPO. The defaults are the paper's table of hyperparameters."""

    @classmethod
    def presets(cls) -> Mapping[str, Variant]:
        return presets(cls)

    @classmethod
    def usual_preset(cls) -> str:
        return "nc-gru"

    @classmethod
    def plain_preset(cls) -> str:
        return "gru"

    def check(self, setup: Setup) -> None:
        check_ppo(setup, self)

    def schedules(self, setup: Setup, iteration: Int[Array, ""]) -> dict[str, float]:
        values = {}
        if self.learning_rate_decay == "linear":
            values["learning rate"] = float(learning_rate(self, setup.iterations, iteration))
        if self.costate_warmup > 0.0:
            values["share of the co-state loss"] = float(costate_scale(self, setup.iterations, iteration))
        return values

    def flops_per_env_step(self, setup: Setup) -> float:
        return flops_per_env_step(setup, self)

    def build(self, setup: Setup) -> PPOLearner:
        return PPOLearner(self, setup)
