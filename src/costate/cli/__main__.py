"""Run the command ``costate`` as ``python -m costate.cli``."""

import sys

from costate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
