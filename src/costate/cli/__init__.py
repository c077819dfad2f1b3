"""The command line: one file for each command, and what all of them share."""

from costate.cli.main import COMMANDS as COMMANDS
from costate.cli.main import main as main
