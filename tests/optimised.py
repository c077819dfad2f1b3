"""Full optimisation for the few programs of the tests that run long enough to repay it; conftest.py asks for less."""

import functools

import jax

optimised_jit = functools.partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False},
)
