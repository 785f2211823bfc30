"""Advise operators what to do about a suspended instance, with commands."""

from __future__ import annotations

import re
import shlex

from postroom.errors import format_count
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import Instance, InstanceState
from postroom.messagebox.queues import DELIVERIES, UNRECEIVED, Cause, QueueTask
from postroom.pipelines.rows.document import LINE_HINT
from postroom.ports.send_ports import read_send_ports


def read_advice(connection: Connection, instance: Instance) -> str | None:
    """Return what to do about a suspended instance. A caller of a failed request has been answered (RR-11)."""
    advice = get_advice(instance)
    is_failed = instance.state is InstanceState.SUSPENDED and instance.cause is Cause.FAILURE
    if not is_failed or instance.task not in DELIVERIES:
        return advice
    # Operators may not read the message, which shows whether there was a caller.
    if not any(port.port_id == instance.service_id and port.is_two_way for port in read_send_ports(connection)):
        return advice
    return (
        "It is a request. If a caller waited for the response, it got the failure as the answer and does not wait any"
        " more, so a response would be suspended with CORRELATION. Then: postroom instance terminate"
        f" {instance.instance_id}\nTo send the request anyway: {advice}"
    )


def get_advice(instance: Instance) -> str | None:
    """Return what to do about a suspended instance. Return None for an instance that is not suspended."""
    if instance.state not in (InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE):
        return None
    advice = _advise(instance)
    if instance.task is QueueTask.DELIVER_IN_ORDER and instance.cause is Cause.FAILURE and instance.messages > 1:
        waiting = format_count(instance.messages - 1, "message")
        advice += f"\nOr move it aside and send the {waiting} after it: postroom instance skip {instance.instance_id}"
    return advice


def _advise(instance: Instance) -> str:
    instance_id = instance.instance_id
    resume, terminate = f"postroom instance resume {instance_id}", f"postroom instance terminate {instance_id}"
    correct = f"postroom message body {instance_id} > FILE, correct FILE, {resume} --body FILE"
    if instance.cause is Cause.ROUTING_FAILURE_REPORT:
        return _advise_about_report(instance, terminate)
    if instance.error_code == UNRECEIVED:
        return (
            "The orchestration instance ended without receiving the message. Publish it to the current subscribers:"
            f" postroom instance reroute {instance_id}\nOr: {terminate}"
        )
    if instance.state is InstanceState.SUSPENDED_NOT_RESUMABLE:
        return f"It cannot be resumed. If its message is needed: postroom message save {instance_id}\nThen: {terminate}"
    if instance.service_removed:
        return _advise_about_removed_service(instance, resume, terminate)
    match instance.error_code:
        case "PIPELINE" if LINE_HINT in (instance.error_description or ""):
            return (
                f"Correct the line: {correct}\n"
                f"Or correct all bad rows of its file: postroom instance save-rows {instance_id} FILE,"
                f" correct FILE, postroom instance resume-rows FILE\nOr: {terminate}"
            )
        case "PIPELINE":
            return f"Correct the message: {correct}\nOr correct the pipeline and apply it, then: {resume}"
        case "MAP":
            return f"Correct the map and apply it, then: {resume}\nOr correct the message: {correct}"
        case "AUTHENTICATION":
            return (
                "On a trusted host, let a decoder write BTS.OriginatorSID and a party resolver find the party. Apply"
                f" the application, then: {resume}\nOr: {terminate}"
            )
        case "ROUTING" if instance.task is QueueTask.REROUTE:
            return f"Enlist or correct a port whose filter matches the message, then: {resume}\nOr: {terminate}"
        case "ROUTING":
            return (
                f"See which subscribers nearly match: postroom explain {instance_id}\n"
                f"Enlist or correct a port, then: {resume}"
            )
        case "DELIVERY":
            return f"Fix the receiving system, then: {resume}"
        case "DELIVERY_REFUSED":
            return f"Correct the port and apply it, then: {resume}\nOr correct the message: {correct}\nOr: {terminate}"
        case "ADDRESS":
            return f"Widen folders= or urls= of the port and apply it, then: {resume}\nOr: {terminate}"
        case "EXPIRED":
            return f"Send it anyway, unless it has an expiration time of its own: {resume}\nOr: {terminate}"
        case "SERVICE_WINDOW":
            return f"Correct service_window= of the port and apply it, then: {resume}\nOr: {terminate}"
        case "PORT_STOPPED":
            return _advise_to_start(instance, resume)
        case "LOOP":
            return (
                "Correct the filters of the services that activate each other, and apply them. Then publish the message"
                f" once: {resume}\nOr: {terminate}"
            )
        case "ORCHESTRATION" | "ORCHESTRATION_CODE" | "JOURNAL" | "JOURNAL_FULL" | "STEP_RESULT":
            return f"Correct the orchestration and apply it, then: {resume}\nOr: {terminate}"
        case "PORT_GONE":
            return f"The port is declared again: {resume}\nOr: {terminate}"
        case _ if instance.task is QueueTask.RECEIVE:
            return f"{resume}\nOr correct the message: {correct}"
        case _:
            return f"{resume}\nOr: {terminate}"


def _advise_about_report(instance: Instance, terminate: str) -> str:
    """Return what to do about a routing failure report."""
    about = instance.related_instance_id
    if about is None and instance.uri is not None:
        return (
            "It is the report about a received message that was routed as an error message. The error message names"
            f" this report (ErrorReport.RoutingFailureReportID). When you have read it: {terminate}"
        )
    if about is None:
        return f"It is the report about a publish that was rejected. When you have read it: {terminate}"
    if instance.related_instances > 1:
        return (
            f"It is the report about {instance.related_instances:,} instances from {about} to"
            f" {instance.last_related_instance_id}, and is deleted with the last of them. It shows the first.\n"
            f"Find their interchange: postroom message show {about}\n"
            "List them: postroom instance list --interchange INTERCHANGE"
        )
    return f"It is the report about instance {about}, and is deleted with that instance."


def _advise_to_start(instance: Instance, resume: str) -> str:
    """Return what to do about an instance that was suspended because its port, its group or its orchestration was
    stopped. The description has the name that the port had then."""
    if instance.service_class is ServiceClass.ORCHESTRATIONS:
        start = f"postroom orchestration start {shlex.quote(instance.service or '')}"
        return (
            f"Start it, which activates an instance with this message: {start}\nOr activate it while stopped: {resume}"
        )
    description = instance.error_description or ""
    named = re.search(rf"(?<!\w){re.escape(instance.service or '')}(?!\w)", description)
    renamed = "" if named else f"The port has the name {instance.service!r} now.\n"
    start = f"postroom port start {shlex.quote(instance.service or '')}"
    if "send port group" in description:
        start = f"{start}, or postroom group start GROUP"
    return f"{renamed}Start what is stopped, which resumes it: {start}\nOr send it while stopped: {resume}"


def _advise_about_removed_service(instance: Instance, resume: str, terminate: str) -> str:
    """Return what to do about an instance whose send port or receive location was removed."""
    removed = f"{instance.service!r} was removed."
    if instance.task in (QueueTask.RECEIVE, QueueTask.JOIN_INSTANCE):
        return f"{removed} Apply an application that has it again, then: {resume}\nOr: {terminate}"
    if instance.task not in DELIVERIES:
        return f"{removed} Publish the message to the current subscribers: {resume}\nOr: {terminate}"
    return (
        f"{removed} Publish the message to the current subscribers: postroom instance reroute {instance.instance_id}\n"
        f"Or apply the application with the port again, then: {resume}\n"
        f"Or: {terminate}"
    )
