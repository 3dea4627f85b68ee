"""``python -m turnstream``."""

import sys

from turnstream.cli import main

if __name__ == "__main__":
    sys.exit(main())
