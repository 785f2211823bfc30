"""Back up a running MessageBox with its claimed files, and restore it."""

from __future__ import annotations

from postroom.operations.backup.create import BackupReport, create_backup
from postroom.operations.backup.manifest import Manifest, read_manifest
from postroom.operations.backup.restore import RestoreReport, restore_backup

__all__ = ["BackupReport", "Manifest", "RestoreReport", "create_backup", "read_manifest", "restore_backup"]
