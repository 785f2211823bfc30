"""`postroom demo`: what a newcomer sees first has to be right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_order_of_the_demo_is_where_it_should_be(home: Path) -> None:
    command = [sys.executable, "-m", "postroom", "demo", "-o", "json", "--home", str(home / "a home with spaces")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["differences"] == []
    assert told["found"] == told["expected"]
    assert told["found"]["suspended: PIPELINE"] > 0
    assert told["found"]["suspended: ROUTING"] > 0
    assert not (home / "a home with spaces").exists()
