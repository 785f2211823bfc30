"""A pipeline is killed with kill -9 inside a step of its JDBC sink, and the next one continues the batch.

The step is held in PostgreSQL by a lock. The session of the killed process stays there until the next process waits for
it, so that its step ends while the next process works on the same batch. Only the session that completes the batch in
the MessageBox has to end before: it has the lock of the sink.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from psycopg.conninfo import conninfo_to_dict

from postroom.adapters import SparkTable
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from tests.support.box import Box
from tests.support.installation import Installation
from tests.support.jdbc_jars import find_jar
from tests.support.sinks import add_sink, publish
from tests.support.tcp_forwarder import forward_tcp
from tests.support.waiting import PATIENCE, wait_until

#: Where a process is held, and how many rows of the batch the table has then.
POINTS = {"stage": 0, "merge": 0, "commit": 0, "drop": 3, "complete": 3}

#: Each step waits for an advisory lock with its number. A deferred trigger runs inside the COMMIT.
HOLD = """
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4711, TG_ARGV[0]::integer);
    RETURN coalesce(NEW, OLD);
END $$;
CREATE FUNCTION public.hold_inserts() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT object_identity FROM pg_event_trigger_ddl_commands()
         WHERE object_type = 'table' AND object_identity LIKE 'public.postroom%'
    LOOP
        EXECUTE format('CREATE TRIGGER hold BEFORE INSERT ON %s EXECUTE FUNCTION public.hold(0)', made.object_identity);
    END LOOP;
END $$;
CREATE FUNCTION public.hold_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4711, 3);
END $$;
CREATE TABLE public.merged (
    message_id varchar(36) PRIMARY KEY, interchange_id text, message_type text, received_at timestamp, body text
);
CREATE TRIGGER hold_merge BEFORE INSERT ON public.merged
    FOR EACH ROW WHEN (NEW.body = 'b') EXECUTE FUNCTION public.hold(1);
CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON public.merged
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.hold(2);
CREATE EVENT TRIGGER hold_stage ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.hold_inserts();
CREATE EVENT TRIGGER hold_drop ON sql_drop WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION public.hold_drop();
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SESSIONS = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database()"
TABLES = "SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = 'public'"


@pytest.mark.sample("killed pipeline")
@pytest.mark.parametrize("point", POINTS)
def test_the_table_has_each_row_once_if_the_process_is_killed_at(point: str, box: Box, tmp_path: Path) -> None:
    run = ("pipeline", "run", "Default", "--once", "--master", "local[1]")
    settings = ("--conf", "spark.driver.memory=512m", "--conf", f"spark.jars={find_jar('postgresql-')}")
    with forward_tcp(box.url) as port, Installation(tmp_path, box.url) as installation, connect(box.url) as holder:
        login = conninfo_to_dict(box.url)
        url = f"jdbc:postgresql://127.0.0.1:{port}/{login['dbname']}"
        add_sink(box, SparkTable(url, "public.merged", body="text", options={"user": str(login["user"])}))
        ids = publish(box, b"a", b"b", b"c")
        box.connection.execute(HOLD)
        box.add_trigger("hold_complete", "sink batches", "BEFORE DELETE", "public.hold(4)")
        holder.execute("SELECT pg_advisory_lock(4711, %s)", (list(POINTS).index(point),))
        before = box.one(SESSIONS)
        killed = installation.start(*run, *settings)
        wait_until(lambda: not killed.is_running or box.one(WAITING) == 1, what="a held process")
        assert killed.is_running, killed.output()
        child_processes = psutil.Process(killed.pid).children(recursive=True)
        killed.kill()
        assert psutil.wait_procs(child_processes, PATIENCE)[1] == []
        assert box.one("SELECT count(*) FROM public.merged") == POINTS[point]

        if point == "complete":
            holder.execute("SELECT pg_advisory_unlock_all()")
            wait_until(lambda: box.one(SESSIONS) == before, what="the end of the sessions of the killed process")
        following = installation.start(*run, *settings)
        if point != "complete":
            wait_until(lambda: not following.is_running or box.one(WAITING) == 2, what="the next process to wait")
            assert following.is_running, following.output()
            holder.execute("SELECT pg_advisory_unlock_all()")
        wait_until(lambda: not following.is_running, what="the end of the run")
        assert following.stop() == 0, following.output()
    found = box.connection.execute("SELECT message_id, body FROM public.merged ORDER BY body").fetchall()
    assert found == list(zip(ids, ("a", "b", "c"), strict=True))
    assert box.one(TABLES) == ["merged"], "no staging table is left"
    assert (box.count("sink batches"), box.count("queued"), box.count("suspended")) == (0, 0, 0)
    assert check(box.connection) == []
