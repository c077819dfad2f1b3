"""The command line: one file per command, and the code that commands share."""

from costate.cli.main import COMMANDS as COMMANDS
from costate.cli.main import main as main
