"""``python -m costate`` is the command ``costate``."""

import sys

from costate.cli import main

if __name__ == "__main__":
    sys.exit(main())
