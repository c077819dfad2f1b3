"""Full optimisation for the few test programs that run long enough. conftest.py disables it for the rest."""

import functools

import jax

optimised_jit = functools.partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False},
)
