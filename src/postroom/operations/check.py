"""Is everything in the MessageBox as it must be?"""

from __future__ import annotations

from postroom.messagebox.check import Violation, check

__all__ = ["Violation", "check"]
