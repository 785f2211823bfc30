"""What to do about a suspended instance, by why it is suspended; the commands are those of the command line."""

from __future__ import annotations

from postroom.messagebox.storage.writing import Cause, Task
from postroom.operations.instances.listing import Instance, InstanceState


def advice(instance: Instance) -> str | None:
    """The way out, with the commands to take it; None for an instance that is not suspended."""
    if instance.state not in (InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE):
        return None
    one = instance.instance_id
    resume, terminate = f"postroom instance resume {one}", f"postroom instance terminate {one}"
    mend = f"postroom message body {one} > FILE, mend it, {resume} --body FILE"
    if instance.cause is Cause.ROUTING_FAILURE_REPORT:
        about = instance.related_instance_id
        if about is None and instance.uri is not None:
            return (
                "It is the report on a received message, which went on as an error message; that one names this report"
                f" (ErrorReport.RoutingFailureReportID). When you have read it: {terminate}"
            )
        if about is None:
            return f"It is the report of a publish that was refused. When you have read it: {terminate}"
        return f"It is the report on instance {about}, and goes with that one."
    if instance.state is InstanceState.SUSPENDED_NOT_RESUMABLE:
        return f"It cannot be resumed. If its message is needed: postroom message save {one}\nThen: {terminate}"
    match instance.error_code:
        case "PIPELINE":
            return f"Correct the pipeline and apply it, then: {resume}\nOr correct the message: {mend}"
        case "MAP":
            return f"Correct the map and apply it, then: {resume}\nOr correct the message: {mend}"
        case "AUTHENTICATION":
            return (
                "Have a decoder of the pipeline write BTS.OriginatorSID and a resolver name the party, on a trusted "
                f"host, and apply it; then: {resume}\nOr: {terminate}"
            )
        case "ROUTING":
            return f"See who misses it by how little: postroom explain {one}\nEnlist or correct a port; then: {resume}"
        case "DELIVERY":
            return f"Fix what did not accept it, then: {resume}"
        case "DELIVERY_REFUSED":
            return f"Correct the port and apply it, then: {resume}\nOr correct the message: {mend}\nOr: {terminate}"
        case "ADDRESS":
            return f"Widen folders= or urls= of the port and apply it, then: {resume}\nOr: {terminate}"
        case "PORT_STOPPED":
            return f"Start what is stopped, which takes it up again. Or send it although it is stopped: {resume}"
        case "PORT_GONE":
            return f"Apply an application that has the port again, then: {resume}\nOr: {terminate}"
        case _ if instance.task is Task.RECEIVE:
            return f"{resume}\nOr correct the message: {mend}"
        case _:
            return f"{resume}\nOr: {terminate}"
