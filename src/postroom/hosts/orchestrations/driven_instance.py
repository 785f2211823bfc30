"""A claimed instance that a worker drives from one persistence point to the next."""

from __future__ import annotations

from postroom.hosts.orchestrations.instance_store import MessageBoxStore
from postroom.hosts.orchestrations.worker_session import WorkerSession
from postroom.messagebox.orchestrations import ClaimedInstance
from postroom.orchestrations.driver import Driver, Outcome, PersistencePoint
from postroom.orchestrations.execution import Execution


class DrivenInstance:
    """An instance that is driven. ``point`` is its next persistence point, which is not stored yet, or None if there is
    nothing more to do."""

    def __init__(self, claimed: ClaimedInstance, store: MessageBoxStore, driver: Driver) -> None:
        self.claimed = claimed
        self.store = store
        self.point: PersistencePoint | None = None
        self.runs_step = False
        self._driver = driver
        self._points = driver.run()
        self._outcome: Outcome | None = None

    @property
    def execution(self) -> Execution:
        return self._driver.execution

    def advance(self, session: WorkerSession) -> None:
        """Drive the instance up to its next persistence point, with the session of this worker."""
        self.store.session = session
        try:
            self.point = next(self._points) if self._outcome is None else self._points.send(self._outcome)
        except StopIteration:
            self.point = None

    def keep_outcome(self, outcome: Outcome) -> None:
        """Keep the outcome of the persistence point for the next ``advance``."""
        assert self.point is not None
        self._outcome = outcome
        self.runs_step = self.point.runs_step and not outcome
        if not outcome:
            self.store.move_past(self.point)

    def close(self) -> None:
        """Drop the coroutine. The instance continues from its journal."""
        self._points.close()
        self.execution.close()
