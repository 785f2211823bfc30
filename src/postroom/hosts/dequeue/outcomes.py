"""What became of a message that was handed over."""

from __future__ import annotations

from enum import Enum

from postroom.messagebox.queues import Retry, Suspension


class Verdict(Enum):
    """The outcomes that need no further word."""

    #: It is delivered: delete the row and release the message.
    COMPLETE = "completed"
    #: The service has completed it itself, in a transaction of its own.
    SETTLED = "settled"
    #: Nobody tried: it goes back to where it was.
    RELEASE = "released"
    #: Its claim was taken over; whatever happened here does not count.
    DISCARD = "discarded"


Outcome = Verdict | Retry | Suspension
