"""The interface of a critic's heads: a head predicts Q(h, u), and owns its target and its loss."""

import abc
import dataclasses

import equinox as eqx

from costate._base.errors import ConfigError
from costate._base.plain_data import chosen_from
from costate._base.registry import Registry
from costate._base.types import Array, Float, Key


class AbstractHead(eqx.Module):
    """Q(h, u) as a function of the critic's memory and the control, for any number of streams.

    A prediction may be any array with the axes of the streams in front: the value itself, or the logits of a
    distribution over values.
    """

    @abc.abstractmethod
    def predict(self, hidden: Float[Array, "*S H"], action: Float[Array, "*S A"]) -> Float[Array, "..."]:
        """Return the prediction of which the other methods speak."""

    @abc.abstractmethod
    def value(self, prediction: Float[Array, "..."]) -> Float[Array, "*S"]:
        """Return Q, differentiable by the prediction."""

    @abc.abstractmethod
    def target(self, backup: Float[Array, "*S"]) -> Float[Array, "..."]:
        """Return what a prediction is compared with where Q should be ``backup``."""

    @abc.abstractmethod
    def loss(self, prediction: Float[Array, "..."], target: Float[Array, "..."]) -> Float[Array, "*S"]:
        """Return the loss of every row; it is least where the value of the prediction is the backup."""


@dataclasses.dataclass(frozen=True)
class HeadConfig(abc.ABC):
    """Settings of the heads; a subclass is registered in ``HEADS`` under the name of its kind of head."""

    count: int = 2
    """Q-functions of the critic, each with weights of its own. The lowest of their values counts."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(
                f"count is {self.count}, but a critic needs at least 1 head. 2 is usual, so that the lower "
                "of two values counts."
            )

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Numbers in one prediction."""

    @abc.abstractmethod
    def build(self, key: Key[Array, ""], inputs: int, width: int) -> AbstractHead:
        """Return a head with fresh weights.

        It reads ``inputs`` numbers, those of the memory and of the control, through hidden layers of
        ``width``.
        """


HEADS: Registry[type[HeadConfig]] = chosen_from("critic head", HeadConfig)
