"""Recognise errors that mean that memory ran out, and say what to do."""

# By name, because the caller may not have imported JAX.
_OF_JAX = ("JaxRuntimeError", "XlaRuntimeError")
_SIGNS = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc", "Failed to allocate")
REMEDY = (
    "Use a smaller --hidden-size, fewer --environments, a smaller --replay.capacity or fewer seeds at once, "
    "or raise the memory limit (ulimit -v, or that of the container)."
)
ADVICE = f"{REMEDY} Everything saved so far is intact."


def out_of_memory(error: BaseException) -> str | None:
    """Return a paragraph about an error that means that memory ran out; None for any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"Memory ran out{f' ({text})' if text else ''}. {ADVICE}"
    if type(error).__name__ in _OF_JAX and any(sign in text for sign in _SIGNS):
        return f"Memory ran out in a compiled program ({text[:200].rstrip('.')}). {ADVICE}"
    return None
