"""`postroom queue`: what stands in the hosts' queues."""

from __future__ import annotations

import click

from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.lazy import Noun
from postroom.cli.opening import opened
from postroom.cli.output import show_rows


@click.group(cls=Noun)
def queue() -> None:
    """Look at the queues of the hosts.

    \b
    Example:
      postroom queue list
    """


@queue.command("list")
@click.option("--all", "everything", is_flag=True, help="Show empty queues, too.")
@frame_options
@pass_frame
def list_(frame: Frame, everything: bool) -> None:
    """Count what stands in each host's queues, and say how long the oldest has waited.

    \b
    Example:
      postroom queue list -o json
    """
    from postroom.cli.ages import in_words
    from postroom.operations.instances.listing import count_queues

    with opened(frame) as connection:
        rows = [
            {
                "host": one.host,
                "state": one.state.words,
                "count": one.count,
                "oldest": one.oldest,
                "age": in_words(one.age),
                "age_seconds": None if one.age is None else one.age.total_seconds(),
            }
            for one in count_queues(connection)
            if one.count or everything
        ]
    show_rows(rows, ["host", "state", "count", "age"], frame.output, empty="All queues are empty.")
