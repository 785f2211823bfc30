"""The command line as an application file for ``spark-submit``:

submit=$(python -c 'import postroom.cli.submit; print(postroom.cli.submit.__file__)')
spark-submit --master yarn "$submit" pipeline run Main --home /srv/orders
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the command line."""
    folder = Path(__file__).resolve().parent
    if (folder / "main.py").exists():
        # Python puts the folder of a script first on the path, but the modules of this folder belong to a package. A
        # copy that was sent to a cluster is alone in its folder.
        sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != folder]
    from postroom.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
