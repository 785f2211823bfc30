"""`python -m postroom`: run the command line."""

from __future__ import annotations

import sys

from postroom.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
