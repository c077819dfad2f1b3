"""Start a run in a new process and exit when its first iteration starts, as timed by `costate bench`."""

import os
import sys
from typing import NoReturn

from costate._base.lean import this_process_is_ours
from costate.config.presets import preset
from costate.training.console import AbstractReporter, Progression
from costate.training.loop import train


class Starter(AbstractReporter):
    """Exit the process as soon as everything is compiled."""

    def say(self, text: str) -> None:
        pass

    def compiled(self, about: str) -> NoReturn:
        # Skips the time that a clean exit would take.
        os._exit(0)

    def progress(self, progression: Progression) -> None:
        raise AssertionError("the first iteration was reached")

    def close(self) -> None:
        pass


if __name__ == "__main__":
    this_process_is_ours()
    task, preset_name, out = sys.argv[1:]
    train(preset(preset_name, task), out, reporter=Starter())
