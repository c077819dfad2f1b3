"""Presets of PPO: the paper's four variants, the authors' code, and the policy class of Definition 3.2."""

from costate.learners.base import Variant
from costate.learners.ppo.settings import PPOSettings
from costate.learners.rollout import RolloutConfig
from costate.policies.cores.costate_cell import CostateCellConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.gru import ResetAfterGRUConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig, TanhReadoutConfig


def presets(kind: type[PPOSettings]) -> dict[str, Variant]:
    """Return the learner's named variants, with settings of the class ``kind``."""
    plain, leaky = kind(costate_coef=0.0), PolicyConfig(core=CTRNNConfig())
    return {
        "gru": Variant(plain),
        "nc-gru": Variant(kind()),
        "ctrnn": Variant(plain, leaky),
        "nc-ctrnn": Variant(kind(), leaky),
        "authors-code": Variant(
            kind(costate_hidden="before", reward_clip=None),
            PolicyConfig(core=ResetAfterGRUConfig(initialisation="uniform"), readout=TanhReadoutConfig()),
            rollout=RolloutConfig(observation_clip=None, random_keys="shared"),
        ),
        "ncp": Variant(
            kind(),
            PolicyConfig(core=CostateCellConfig(), readout=QuadraticReadoutConfig(influence="observed")),
        ),
    }
