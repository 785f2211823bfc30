"""Documents that are suspended alone: their stored context, and how they are resumed.

To resume a document, its pipeline needs the stage at which it stopped, and the properties that are not in the bytes.
Both are in the context of the document until it is published.
"""

from __future__ import annotations

import uuid

from postroom.agent.streaming.documents import ALWAYS_PROMOTED
from postroom.agent.streaming.interchange import Interchange
from postroom.errors import PipelineFailure
from postroom.message import Bytes, Context, Message
from postroom.pipelines import ReceivePipeline
from postroom.pipelines.documents.disassembled_batch import BadDocument, Form
from postroom.pipelines.receive.suspended_document import SuspendedDocument, get_external_values
from postroom.properties import SUSPENDED_NAMESPACE, Property, is_distinguished, split_key
from postroom.system_properties import BTS

#: One of ``Form``.
SuspendedForm = Property("Form", str, namespace=SUSPENDED_NAMESPACE)
SuspendedDisassembler = Property("Disassembler", int, namespace=SUSPENDED_NAMESPACE)
#: Of an interchange: the last document that was published before the rest was rejected.
LastPublished = Property("After", int, namespace=SUSPENDED_NAMESPACE)

_ORIGINATOR = (BTS.OriginatorSID.key, BTS.OriginatorPID.key)


def build_suspended_context(shared: Context, pipeline: ReceivePipeline, disassembler: int, bad: BadDocument) -> Context:
    """Return the context of a suspended document. ``shared`` is that of its interchange, with the document's number."""
    values = get_external_values(pipeline, disassembler, bad)
    marked = shared.write(SuspendedForm, bad.form.value).write(SuspendedDisassembler, disassembler)
    return Context(
        {**marked.promoted, **{key: value for key, value in values.items() if not is_distinguished(key)}},
        {**marked.written, **{key: value for key, value in values.items() if is_distinguished(key)}},
        marked.predicates,
    )


def missing_location_failure() -> PipelineFailure:
    """Return the failure of a message whose receive location is gone: its pipeline cannot read it."""
    return PipelineFailure(
        "The receive location of this message is not deployed any more.",
        hint="Apply an application with that location, or terminate the instance.",
    )


def resume_interchange(message: Message, stored: Context) -> Interchange:
    """Return a suspended message as an interchange, or as a document that was suspended alone.

    ``stored`` is its context without the login that stored it, because that login is not the originator."""
    context = message.context
    values = {key: value for key, value in context.promoted.items() if key not in ALWAYS_PROMOTED}
    values |= {key: value for key, value in context.written.items() if is_distinguished(key)}
    shared = {
        key: value
        for key, value in context.written.items()
        if not is_distinguished(key)
        and split_key(key)[0] != SUSPENDED_NAMESPACE
        and (key not in _ORIGINATOR or key in stored.written)
    }
    document = None
    if context.is_promoted(BTS.InterchangeSequenceNumber):
        disassembler = context.get(SuspendedDisassembler)
        document = SuspendedDocument(
            number=int(str(context[BTS.InterchangeSequenceNumber])),
            form=Form(str(context.get(SuspendedForm, Form.RECEIVED))),
            disassembler=None if disassembler is None else int(str(disassembler)),
            values=values,
            parts=message.parts,
            body_name=message.body_part_name,
        )
    return Interchange(
        interchange_id=uuid.uuid4(),
        body=Bytes(b"") if message.body is None else message.body.body,
        context=Context(written=shared, predicates=context.predicates),
        suspended_document=document,
        last_published=int(str(context.get(LastPublished, 0))),
    )
