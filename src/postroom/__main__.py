"""`python -m postroom`: the command line, for where no script of that name is on the PATH."""

from __future__ import annotations

import sys

from postroom.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
