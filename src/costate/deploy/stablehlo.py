"""Export a policy as StableHLO for anything that runs XLA programs: any core, any batch, weights included."""

import jax
import jax.export
import jax.numpy as jnp

from costate._base.errors import ExportError
from costate.deploy.network import AbstractNetwork


def stablehlo_program(network: AbstractNetwork, observation_size: int) -> bytes:
    """Serialise ``(observation [b, O], state [b, S], is_first [b]) → (action, state, hidden, value)``.

    ``jax.export.deserialize`` reads the result.
    """
    (batch,) = jax.export.symbolic_shape("b")
    arguments = (
        jax.ShapeDtypeStruct((batch, observation_size), jnp.float32),
        jax.ShapeDtypeStruct((batch, network.state_size), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.bool_),
    )
    # A plain tuple, so that a reader does not need this library's classes.
    exported = jax.export.export(jax.jit(lambda *now: tuple(network(*now))), platforms=["cpu"])(*arguments)
    try:
        return bytes(exported.serialize())
    except ImportError as error:  # pragma: no cover
        raise ExportError(
            "This format needs the package flatbuffers. Install it with: pip install 'costate[export]'."
        ) from error
