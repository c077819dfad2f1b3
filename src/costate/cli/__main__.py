"""``python -m costate.cli`` is the command ``costate``."""

import sys

from costate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
