"""Errors that mean that memory ran out, and what to say of them."""

# Names, because whoever asks may not have imported JAX.
_OF_JAX = ("JaxRuntimeError", "XlaRuntimeError")
_SIGNS = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc", "Failed to allocate")
ADVICE = (
    "Use a smaller --hidden-size, fewer --environments, a smaller --replay.capacity or fewer seeds at once, or raise the limit of memory "
    "(ulimit -v, the container's). What was saved is whole."
)


def out_of_memory(error: BaseException) -> str | None:
    """Return a paragraph about an error that says that memory ran out; None if it says something else."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"Memory ran out{f' ({text})' if text else ''}. {ADVICE}"
    if type(error).__name__ in _OF_JAX and any(sign in text for sign in _SIGNS):
        return f"Memory ran out in a compiled program ({text[:200].rstrip('.')}). {ADVICE}"
    return None
