"""Brings claimed instances into memory: with the coroutine that was kept, or by a replay of the journal."""

from __future__ import annotations

import json
from functools import partial

from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.driven_instance import DrivenInstance
from postroom.hosts.orchestrations.instance_queue import NewWork
from postroom.hosts.orchestrations.instance_store import MessageBoxStore
from postroom.hosts.orchestrations.live_instances import LiveInstances
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.hosts.orchestrations.worker_session import WorkerSession
from postroom.orchestrations.driver import Driver
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Continuation
from postroom.orchestrations.recorded_values import from_recorded
from postroom.orchestrations.replay import replay


class InstanceLoader:
    """Loads instances for all workers. ``watch`` watches their code."""

    def __init__(self, code: DeployedCode, live: LiveInstances, watch: TurnWatch) -> None:
        self._code = code
        self._live = live
        self._watch = watch

    def load(self, session: WorkerSession, work: NewWork) -> DrivenInstance | str:
        """Return the instance, or the reason why its code cannot be loaded. Raise JournalMismatch if the code does not
        fit its journal."""
        claimed = work.claimed
        loaded = self._code.find(claimed.service_id)
        if isinstance(loaded, str):
            return loaded
        deployed, orchestration = loaded
        store = MessageBoxStore(session, claimed, deployed, work.messages)
        execution = self._live.take(claimed.instance_id, orchestration, claimed.journal_length)
        watch = partial(self._watch.watch, claimed)
        if execution is None and claimed.journal_length:
            carried = Continuation(journal=claimed.journals, state=from_recorded(json.loads(claimed.carried or "null")))
            execution = replay(orchestration, claimed.instance_id, store.read_journal(), carried, watch)
        elif execution is None:
            execution = Execution(orchestration, claimed.instance_id)
        execution.watch = watch
        return DrivenInstance(claimed, store, Driver(execution, store))

    def keep(self, instance: DrivenInstance) -> None:
        """Keep the coroutine of an instance that waits."""
        self._live.put(instance.execution, instance.store.journal_length)
