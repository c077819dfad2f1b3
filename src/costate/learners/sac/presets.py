"""Presets of soft actor-critic: the paper's four variants, off-policy."""

from costate.learners.base import Variant
from costate.learners.sac.settings import SACSettings
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.policy import PolicyConfig


def presets(kind: type[SACSettings]) -> dict[str, Variant]:
    """Return the learner's named variants, with settings of the class ``kind``."""
    plain, leaky = kind(costate_coef=0.0), PolicyConfig(core=CTRNNConfig())
    return {
        "sac-gru": Variant(plain),
        "nc-sac-gru": Variant(kind()),
        "sac-ctrnn": Variant(plain, leaky),
        "nc-sac-ctrnn": Variant(kind(), leaky),
    }
