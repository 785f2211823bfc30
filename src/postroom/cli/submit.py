"""The command line as an application for ``spark-submit``, which wants a file:

submit=$(python -c 'import postroom.cli.submit; print(postroom.cli.submit.__file__)')
spark-submit --master yarn "$submit" pipeline run Main --home /srv/orders
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    folder = Path(__file__).resolve().parent
    if (folder / "main.py").exists():
        # The folder of a script comes first on the path, and this one's neighbours are no modules by themselves. A copy
        # that was sent to a cluster has none.
        sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != folder]
    from postroom.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
