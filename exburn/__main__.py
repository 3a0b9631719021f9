"""``python -m exburn``: the same as the command ``exburn``."""

import sys

from exburn.command_line.main import main

if __name__ == "__main__":
    sys.exit(main())
