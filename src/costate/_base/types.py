"""Array types for signatures, imported from here by the whole library.

Axis letters: ``T`` time, ``B`` environments (streams), ``O`` observation, ``A`` action, ``F`` encoded
feature, ``H`` hidden, ``C`` all that a core carries from step to step. Trajectories are time-major.
"""

from jaxtyping import Array, Bool, Complex, Float, Int, Key, PyTree, UInt, UInt8

__all__ = ["Array", "Bool", "Complex", "Float", "Int", "Key", "PyTree", "UInt", "UInt8"]
