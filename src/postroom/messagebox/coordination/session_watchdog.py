"""Ends database sessions whose client is frozen while it blocks others.

The kernel keeps the connections of a frozen publisher, host or pipeline open. Its locks would block every change of
subscriptions, and every publish that waits for the change. Each host runs a watchdog. It is not one of the jobs,
because a frozen client may block the jobs, too.
"""

from __future__ import annotations

import logging
import time

from postroom.messagebox.connection import Connect, LazyConnection, read_blocking
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
#: A session is ended if its client sends nothing for this time.
_STALLED_SECONDS = 3.0

_HAS_RIGHTS = """
    SELECT pg_has_role(proowner, 'pg_signal_backend', 'USAGE') AND pg_has_role(proowner, 'pg_read_all_stats', 'USAGE')
      FROM pg_proc WHERE oid = 'messagebox.find_stalled_sessions'::regproc
"""
_STALLED = "SELECT session, activity, application FROM find_stalled_sessions()"


class SessionWatchdog:
    """Polls for stalled sessions, and ends those that stay stalled."""

    def __init__(self, connect: Connect) -> None:
        self._connection = LazyConnection(connect)
        self._stalled_since: dict[tuple[int, str], float] = {}
        self._has_checked_rights = False
        self.loop = BackgroundLoop("session watchdog", self._step)

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        connection = self._connection.get()
        if not self._has_checked_rights:
            self._has_checked_rights = True
            if connection.execute(_HAS_RIGHTS).fetchone() == (False,):
                _log.warning(
                    "The owner of the MessageBox cannot end sessions whose client is frozen."
                    " Grant it the roles pg_signal_backend and pg_read_all_stats."
                )
        now = time.monotonic()
        stalled = read_blocking(connection, _STALLED, tuple)
        self._stalled_since = {
            (session, activity): self._stalled_since.get((session, activity), now) for session, activity, _ in stalled
        }
        for session, activity, application in stalled:
            if now - self._stalled_since[session, activity] >= _STALLED_SECONDS:
                ended = connection.execute("SELECT terminate_stalled_session(%s, %s)", (session, activity)).fetchone()
                if ended == (True,):
                    _log.warning("ended session %d (%s): its client is frozen and blocks others", session, application)
        return _POLL_SECONDS
