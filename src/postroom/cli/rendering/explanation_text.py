"""Write the explanation of a message as text, and the messages that a filter matches."""

from __future__ import annotations

import shlex
from itertools import islice
from typing import TYPE_CHECKING

import click

from postroom.cli.rendering.output import Format, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.filters.authorisation import MessagePredicate
    from postroom.filters.explain import Explanation, GroupExplanation, PredicateExplanation
    from postroom.message import Context
    from postroom.operations.explain.explanation import MessageExplanation, SubscriberExplanation
    from postroom.operations.explain.matching_messages import MatchingMessages

_PREDICATE_WIDTH = 60

_MAX_NAMES = 20
_MAX_GROUPS = 5
_MAX_PROPERTIES = 50
_MAX_CHARACTERS = 160

#: The text about subscribers that are counted but not listed, in singular and plural, by verdict.
_UNLISTED = {
    "receives it": ("receives it", "receive it"),
    "keeps it suspended": ("keeps it suspended", "keep it suspended"),
    "may not receive it": ("would receive it, if its host were authorised", "would, if their hosts were authorised"),
    "would, if enlisted": ("would receive it, if it were enlisted", "would receive it, if they were enlisted"),
    "misses it": ("misses it", "miss it"),
}


def show_explanation(explained: MessageExplanation) -> None:
    """Write one message, its subscribers, and the number of subscribers that are not listed."""
    from postroom.errors import AuthenticationFailure
    from postroom.operations.explain.explanation import Verdict

    click.secho(explained.title, bold=True)
    _show_context(explained.context)
    click.echo()
    if explained.failure is not None:
        what = "is not accepted" if isinstance(explained.failure, AuthenticationFailure) else "cannot be read"
        click.echo(f"It {what}, and would be {explained.failure_handling or 'suspended'}: {explained.failure.what}")
        return
    counts = explained.counts
    total = sum(counts.values())
    names = _list_names(explained, Verdict.RECEIVES)
    click.echo(f"{counts.get(Verdict.RECEIVES, 0):,} of {total:,} subscribers would receive it now{names}.")
    if suspends := counts.get(Verdict.SUSPENDS, 0):
        keep = "keeps" if suspends == 1 else "keep"
        click.echo(f"{suspends:,} more {keep} it suspended{_list_names(explained, Verdict.SUSPENDS)}.")
    if explained.failure_handling is not None:
        click.echo(f"It has no subscriber: it would be {explained.failure_handling}.")
    for subscriber in explained.subscribers:
        click.echo()
        show_subscriber(subscriber)
    if explained.unlisted_counts:
        click.echo()
    for verdict, count in explained.unlisted_counts.items():
        click.echo(f"{count:,} more {_UNLISTED[verdict][count > 1]}.")
    if explained.has_unreadable_instances:
        click.echo("\nInstances may also wait for it. Your login may not read what they wait for.")


def _list_names(explained: MessageExplanation, verdict: str) -> str:
    """Return the first subscribers with this verdict, after a colon."""
    names = [subscriber.name for subscriber in explained.subscribers if subscriber.verdict == verdict][:_MAX_NAMES]
    count = next((count for counted, count in explained.counts.items() if counted == verdict), 0)
    more = f" and {count - len(names):,} more" if count > len(names) else ""
    return f": {', '.join(names)}{more}" if names else ""


def show_subscriber(subscriber: SubscriberExplanation) -> None:
    """Write one subscriber: the verdict, and each predicate with the value of the message."""
    where = "not enlisted" if subscriber.subscription_id is None else f"{subscriber.state} on {subscriber.host}"
    name = click.style(subscriber.name, bold=True)
    click.echo(f"{_format_verdict_mark(subscriber)} {name}  {_describe_verdict(subscriber)}  ({where})")
    if not subscriber.directed_only or subscriber.explanation.holds:
        show_groups(subscriber.explanation)


def show_filter_result(explanation: Explanation) -> None:
    """Write whether a message matches a filter that belongs to no subscription."""
    result = "matches" if explanation.holds else f"misses by {describe_failed_predicates(explanation.nearest)}"
    click.echo(f"{_format_mark(explanation.holds)} {result}")


def show_groups(explanation: Explanation) -> None:
    """Write the groups of a filter, the nearest first, with each predicate and the value of the message."""
    from postroom.filters.text import format_predicate

    all_groups = sorted(explanation.groups, key=lambda group: group.distance)
    groups = [
        [(format_predicate(predicate.predicate), predicate) for predicate in group.predicates]
        for group in all_groups[:_MAX_GROUPS]
    ]
    width = min(_PREDICATE_WIDTH, max(len(text) for group in groups for text, _ in group))
    for number, group in enumerate(groups):
        if number:
            click.echo("  or")
        for text, predicate in group:
            click.echo(f"    {_format_mark(predicate.holds)} {text:<{width}}  {_describe_reason(predicate)}")
    if len(all_groups) > len(groups):
        click.echo(f"  or one of {len(all_groups) - len(groups):,} more, none of which is nearer")


def _describe_reason(predicate: PredicateExplanation) -> str:
    """Return the value of the message and, if the predicate fails, why."""
    from postroom.filters.explain import Reason
    from postroom.filters.text import format_value

    value = "" if predicate.value is None else _shorten(format_value(predicate.value))
    match predicate.reason:
        case Reason.MISSING:
            return "is missing"
        case Reason.NOT_PROMOTED:
            return f"is {value}, but only written, not promoted"
        case Reason.TYPE_DIFFERS:
            wanted = predicate.predicate.property.value_type.python_type.__name__
            return f"is {value}, which is {type(predicate.value).__name__} and not {wanted}"
        case _:
            return f"is {value}"


def _show_context(context: Context) -> None:
    from postroom.filters.text import format_value

    rows = [
        (prop.dotted_name, _shorten(format_value(context[prop])), context.is_promoted(prop))
        for prop in islice(context, _MAX_PROPERTIES)
    ]
    # The name of a distinguished field is its whole path. It would make every line as wide as a page.
    width = max((len(name) for name, _, _ in rows if len(name) <= _PREDICATE_WIDTH), default=0)
    for name, value, promoted in rows:
        note = "" if promoted else "  (written, not used for routing)"
        click.echo(f"  {name:<{width}} = {value}{note}")
    if context.predicates:
        click.echo(f"  requires of its receivers: {_format_predicates(context.predicates)}")
    if len(context) > len(rows):
        click.echo(f"  and {len(context) - len(rows):,} more; -o json shows all")


def _format_predicates(predicates: Iterable[MessagePredicate]) -> str:
    from postroom.filters.text import format_value
    from postroom.properties import dotted_name, split_key

    rows = sorted((dotted_name(*split_key(key)), format_value(value)) for key, value in predicates)
    return ", ".join(f"{name} = {value}" for name, value in rows)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}… ({len(text):,} characters)"


def _format_mark(is_good: bool) -> str:
    """Return a green check mark or a red cross."""
    return click.style("✓", fg="green") if is_good else click.style("✗", fg="red")


def _format_verdict_mark(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explain.explanation import Verdict

    if subscriber.verdict in (Verdict.SUSPENDS, Verdict.NOT_AUTHORISED, Verdict.NOT_ENLISTED):
        return click.style("○", fg="yellow")
    return _format_mark(subscriber.explanation.holds)


def _describe_verdict(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explain.explanation import Verdict

    match subscriber.verdict:
        case Verdict.RECEIVES:
            return "receives it"
        case Verdict.SUSPENDS:
            return f"keeps it suspended until {_describe_start(subscriber, 'is')}"
        case Verdict.NOT_AUTHORISED:
            return f"may not receive it: host {subscriber.host} lacks {_format_predicates(subscriber.unmet)}"
        case Verdict.NOT_ENLISTED:
            return f"would receive it, if {_describe_start(subscriber, 'were')}"
        case _ if subscriber.directed_only:
            return "has no filter: it receives only messages that are directed to it"
        case _:
            return f"misses it by {describe_failed_predicates(subscriber.explanation.nearest)}"


def _describe_start(subscriber: SubscriberExplanation, verb: str) -> str:
    """Return what has to be started, with the commands.

    Example: ``group Everyone is started: postroom group start Everyone``"""
    services = subscriber.not_started
    if not services:
        return f"its service {verb} started"
    verb = "are" if verb == "is" and len(services) > 1 else verb
    commands = "; ".join(f"postroom {service.kind} start {shlex.quote(service.name)}" for service in services)
    names = " and ".join(f"{service.kind} {service.name}" for service in services)
    return f"{names} {verb} started: {commands}"


def describe_failed_predicates(group: GroupExplanation) -> str:
    """Return the number of predicates of a group that fail."""
    count = sum(not predicate.holds for predicate in group.predicates)
    return "one predicate" if count == 1 else f"{count} predicates"


def show_matches(found: MatchingMessages) -> None:
    """Write the matches as a table. Without a match, write the nearest misses with the predicates that fail."""
    if not found.scanned:
        click.echo("The spool is empty.")
        return
    if found.scanned == 1:
        click.echo(f"The message that was compared {'would' if found.matching else 'would not'} match.")
    else:
        click.echo(f"{found.matching:,} of the {found.scanned:,} messages that were compared would match.")
    if found.messages:
        click.echo()
        columns = ["message_id", "published_at", "message_type"]
        if not all(message.authorised for message in found.messages):
            columns.append("authorised")
        show_rows(found.messages, columns, Format.TABLE)
        if found.matching > len(found.messages):
            click.echo(f"\n{found.matching - len(found.messages):,} more match.")
    if found.nearest:
        click.echo("The nearest:")
    for message in found.nearest:
        failed = describe_failed_predicates(message.explanation.nearest)
        click.echo(f"\n{click.style(str(message.message_id), bold=True)}  misses by {failed}")
        for text in message.failures:
            click.echo(f"    {text}")
