"""A policy as StableHLO, for whatever runs XLA programs: any core, any batch, the weights inside."""

import jax
import jax.export
import jax.numpy as jnp

from costate._base.errors import ExportError
from costate.deploy.network import AbstractNetwork


def stablehlo_program(network: AbstractNetwork, observation_size: int) -> bytes:
    """``(observation [b, O], state [b, S], is_first [b]) → (action, state, hidden, value)``, serialised; ``jax.export.deserialize`` reads it."""
    (batch,) = jax.export.symbolic_shape("b")
    arguments = (
        jax.ShapeDtypeStruct((batch, observation_size), jnp.float32),
        jax.ShapeDtypeStruct((batch, network.state_size), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.bool_),
    )
    # As a plain tuple: a reader should not need our classes.
    exported = jax.export.export(jax.jit(lambda *now: tuple(network(*now))), platforms=["cpu"])(*arguments)
    try:
        return bytes(exported.serialize())
    except ImportError as error:  # pragma: no cover
        raise ExportError(
            "This format needs the package flatbuffers. Install it with: pip install 'costate[export]'."
        ) from error
