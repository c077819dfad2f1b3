"""Soft actor-critic as a registered learner: its settings, and its answers to the rest of the library."""

import dataclasses
from collections.abc import Mapping

from costate._base.types import Array, Int
from costate.learners.base import LEARNERS, Setup, Variant
from costate.learners.sac.checks import check_sac
from costate.learners.sac.flops import flops_per_env_step
from costate.learners.sac.learner import SACLearner
from costate.learners.sac.presets import presets
from costate.learners.sac.settings import SACSettings
from costate.policies.costate_loss import costate_scale


@LEARNERS.register("sac")
@dataclasses.dataclass(frozen=True)
class SACConfig(SACSettings):
    """Settings of soft actor-critic."""

    @classmethod
    def presets(cls) -> Mapping[str, Variant]:
        return presets(cls)

    @classmethod
    def usual_preset(cls) -> str:
        return "nc-sac-gru"

    @classmethod
    def plain_preset(cls) -> str:
        return "sac-gru"

    def check(self, setup: Setup) -> None:
        check_sac(setup, self)

    def schedules(self, setup: Setup, iteration: Int[Array, ""]) -> dict[str, float]:
        if self.costate_warmup == 0.0:
            return {}
        return {"share of the co-state loss": float(costate_scale(self, setup.iterations, iteration))}

    def flops_per_env_step(self, setup: Setup) -> float:
        return flops_per_env_step(setup, self)

    def build(self, setup: Setup) -> SACLearner:
        return SACLearner(self, setup)
