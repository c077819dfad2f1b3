"""Start a run in a process of its own and end when its first iteration starts: what `costate bench` times."""

import os
import sys
from typing import NoReturn

from costate._base.lean import this_process_is_ours
from costate.config.presets import preset
from costate.training.console import AbstractReporter, Progression
from costate.training.loop import train


class Starter(AbstractReporter):
    """Ends the process at once when everything is compiled."""

    def say(self, text: str) -> None:
        pass

    def compiled(self, about: str) -> NoReturn:
        # Without the time that it takes to close what is open.
        os._exit(0)

    def progress(self, progression: Progression) -> None:
        raise AssertionError("the first iteration was reached")

    def close(self) -> None:
        pass


if __name__ == "__main__":
    this_process_is_ours()
    task, preset_name, out = sys.argv[1:]
    train(preset(preset_name, task), out, reporter=Starter())
