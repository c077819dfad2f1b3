"""The words of `costate verify`: exactly what was compared, and what was not."""

from collections.abc import Sequence

from costate.trained.verification import Saved, Verification

SHOWN = 5
KINDS = {"milestone": "milestones", "checkpoint": "checkpoints", "best policy": "best policies"}


def sentences(result: Verification) -> list[str]:
    """Return the lines that `costate verify` prints."""
    return [
        *(f"this machine differs: {change}" for change in result.machine),
        *_found(result),
        _verdict(result),
        *_not_compared(result),
    ]


def _found(result: Verification) -> list[str]:
    numbers = [
        f"iteration {d.iteration}, {d.metric}: {d.logged!r} in the log, {d.again!r} now"
        for d in result.differences[:SHOWN]
    ]
    more = len(result.differences) - SHOWN
    saved = [f"{each.saved.kind} at step {each.saved.env_steps:,}: {each.what}" for each in result.altered]
    return [*numbers, *([f"… and {more} more numbers"] if more > 0 else []), *saved]


def _verdict(result: Verification) -> str:
    which = f"{_iterations(1, result.iterations)} of {result.logged}"
    if result.same:
        saved = (
            f"{_listed(result.saved)} ({result.arrays} arrays)"
            if result.saved
            else "nothing was saved within them"
        )
        return f"the same, bit for bit: {which}, all {result.numbers} logged numbers except timings; {saved}"
    parts = []
    if result.differences:
        size = f"by a relative {result.largest:.2g} at most"
        parts.append(f"{len(result.differences)} of {result.numbers} numbers in the log differ, {size}")
    if result.altered:
        wrong = len({each.saved for each in result.altered})
        parts.append(f"{wrong} of {len(result.saved)} saved states {'differs' if wrong == 1 else 'differ'}")
    return f"not the same: in {which}, {' and '.join(parts)}"


def _not_compared(result: Verification) -> list[str]:
    lines = []
    left = [_iterations(result.iterations + 1, result.logged)] if result.iterations < result.logged else []
    left += [_listed(result.unseen)] if result.unseen else []
    if left:
        hint = "" if result.stopped else " (--all trains all of the log again)"
        lines.append(f"not compared: {'; '.join(left)}{hint}")
    if result.beside:
        lines.append(
            f"not compared: {result.beside} numbers of eval/*, since evaluations during training are not "
            "repeated"
        )
    if result.stopped:
        lines.append(f"stopped after iteration {result.iterations}: {result.stopped}")
    return lines


def _iterations(first: int, last: int) -> str:
    return f"iteration {first}" if first == last else f"iterations {first} to {last}"


def _listed(saved: Sequence[Saved]) -> str:
    """List kinds with their steps: "milestones at steps 0 and 400"."""
    parts = []
    for kind, plural in KINDS.items():
        steps = [f"{each.env_steps:,}" for each in saved if each.kind == kind]
        if steps:
            parts.append(
                f"{kind} at step {steps[0]}"
                if len(steps) == 1
                else f"{plural} at steps {', '.join(steps[:-1])} and {steps[-1]}"
            )
    return "; ".join(parts)
