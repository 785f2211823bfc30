"""What operators have done."""

from __future__ import annotations

from postroom.messagebox.audit import list_audit as list_audit
