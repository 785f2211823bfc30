"""How the explanation of a message is written: short, aligned, with the reason in words."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.filters.authorisation import MessagePredicate
    from postroom.filters.explain import Explanation, GroupExplanation, PredicateExplanation
    from postroom.message import Context
    from postroom.operations.explain.explanation import MessageExplanation, SubscriberExplanation

_WIDEST_PREDICATE = 60

#: How much is shown of what may be very much: names in a line, groups of a filter, properties and characters of each.
_NAMES = 20
_GROUPS = 5
_PROPERTIES = 50
_CHARACTERS = 160
#: A program gets more of everything.
_PLAIN_GROUPS = 100
_PLAIN_CHARACTERS = 1_000

#: By what a subscriber does with a message: what one, or several, do that are not shown.
_OTHERS = {
    "receives it": ("receives it", "receive it"),
    "keeps it suspended": ("keeps it suspended", "keep it suspended"),
    "may not receive it": ("would receive it, if its host were authorised", "would, if their hosts were authorised"),
    "would, if enlisted": ("would receive it, if it were enlisted", "would receive it, if they were enlisted"),
    "misses it": ("misses it", "miss it"),
}


def show_explanation(explained: MessageExplanation) -> None:
    """One message with its subscribers, and how many there are besides those that are shown."""
    from postroom.errors import AuthenticationFailure
    from postroom.operations.explain.explanation import Verdict

    click.secho(explained.title, bold=True)
    _show_context(explained.context)
    click.echo()
    if explained.failure is not None:
        what = "is not accepted" if isinstance(explained.failure, AuthenticationFailure) else "cannot be read"
        click.echo(f"It {what}, and would be {explained.end or 'suspended'}: {explained.failure.what}")
        return
    counts = explained.counts
    total = sum(counts.values())
    click.echo(f"{counts.get(Verdict.RECEIVES, 0):,} of {total:,} subscribers would receive it now{_names(explained)}.")
    if suspends := counts.get(Verdict.SUSPENDS, 0):
        keep = "keeps" if suspends == 1 else "keep"
        click.echo(f"{suspends:,} more {keep} it suspended{_names(explained, Verdict.SUSPENDS)}.")
    if explained.end is not None:
        click.echo(f"Nobody takes it: it would be {explained.end}.")
    for subscriber in explained.subscribers:
        click.echo()
        show_subscriber(subscriber)
    rest = hidden(explained)
    if rest:
        click.echo()
    for verdict, count in rest.items():
        click.echo(f"{count:,} more {_OTHERS[verdict][count > 1]}.")
    if explained.unseen:
        click.echo("\nInstances may wait for it, too: the login may not see what they wait for.")


def _names(explained: MessageExplanation, verdict: str = "receives it") -> str:
    """The first of those that do this with the message, after a colon."""
    named = [one.name for one in explained.subscribers if one.verdict == verdict][:_NAMES]
    count = next((count for each, count in explained.counts.items() if each == verdict), 0)
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    return f": {', '.join(named)}{more}" if named else ""


def hidden(explained: MessageExplanation) -> dict[str, int]:
    """How many subscribers of each kind are not among those that are shown."""
    shown = Counter(one.verdict for one in explained.subscribers)
    return {
        verdict.value: count - shown[verdict] for verdict, count in explained.counts.items() if count > shown[verdict]
    }


def show_subscriber(subscriber: SubscriberExplanation) -> None:
    """One subscriber: the verdict, and each predicate with the value that it met."""
    where = "not enlisted" if subscriber.subscription_id is None else f"{subscriber.state} on {subscriber.host}"
    click.echo(
        f"{_verdict_mark(subscriber)} {click.style(subscriber.name, bold=True)}  {_in_words(subscriber)}  ({where})"
    )
    if not subscriber.directed_only or subscriber.explanation.holds:
        show_groups(subscriber.explanation)


def tell_filter(explanation: Explanation) -> None:
    """Whether a message meets a filter that nobody subscribes with."""
    said = "matches" if explanation.holds else f"misses by {failed_in_words(explanation.nearest)}"
    click.echo(f"{mark(explanation.holds)} {said}")


def show_groups(explanation: Explanation) -> None:
    """The groups of a filter, the nearest first, with each predicate and what it met."""
    every = sorted(explanation.groups, key=lambda group: group.distance)
    groups = every[:_GROUPS]
    width = min(_WIDEST_PREDICATE, max(len(_said(each)) for group in groups for each in group.predicates))
    for number, group in enumerate(groups):
        if number:
            click.echo("  or")
        for predicate in group.predicates:
            click.echo(f"    {mark(predicate.holds)} {_said(predicate):<{width}}  {reason_in_words(predicate)}")
    if len(every) > len(groups):
        click.echo(f"  or one of {len(every) - len(groups):,} more groups, none of which is nearer")


def reason_in_words(predicate: PredicateExplanation) -> str:
    """What the predicate met."""
    from postroom.filters.explain import Reason
    from postroom.filters.text import format_value

    value = "" if predicate.met is None else _short(format_value(predicate.met))
    match predicate.reason:
        case Reason.MISSING:
            return "is not there"
        case Reason.NOT_PROMOTED:
            return f"is {value}, but only written, not promoted"
        case Reason.TYPE_DIFFERS:
            wanted = predicate.predicate.property.value_type.python_type.__name__
            return f"is {value}, which is {type(predicate.met).__name__} and not {wanted}"
        case _:
            return f"is {value}"


def as_plain(explained: MessageExplanation) -> dict[str, Any]:
    """For programs."""
    return {
        "title": explained.title,
        "accepted": explained.accepted,
        "failure": None if explained.failure is None else explained.failure.what,
        "end": explained.end,
        "context": context_rows(explained.context),
        "requires": _required_rows(explained.context.predicates),
        "counts": {verdict.value: count for verdict, count in explained.counts.items()},
        "not_shown": hidden(explained),
        "waiting_instances_unseen": explained.unseen,
        "subscribers": [subscriber_as_plain(one) for one in explained.subscribers],
    }


def subscriber_as_plain(subscriber: SubscriberExplanation) -> dict[str, Any]:
    """One subscriber, for programs."""
    return {
        "name": subscriber.name,
        "verdict": subscriber.verdict.value,
        "matches": subscriber.explanation.holds,
        "state": subscriber.state,
        "host": subscriber.host,
        "subscription_id": subscriber.subscription_id,
        "unmet": _required_rows(subscriber.unmet),
        "not_started": [one._asdict() for one in subscriber.not_started],
        **filter_as_plain(subscriber.explanation),
    }


def filter_as_plain(explanation: Explanation) -> dict[str, Any]:
    """How a message stands to a filter, for programs; of very many groups the nearest."""
    nearest = sorted(explanation.groups, key=lambda group: group.distance)[:_PLAIN_GROUPS]
    return {
        "distance": explanation.distance,
        "groups": [
            {"holds": group.holds, "predicates": [_predicate_as_plain(each) for each in group.predicates]}
            for group in nearest
        ],
        "groups_in_all": len(explanation.groups),
    }


def context_rows(context: Context) -> list[dict[str, Any]]:
    """The properties of a context, promoted ones first. Of a long text there is the beginning, and its length."""
    rows = []
    for prop in context:
        value = context[prop]
        row = {"property": prop.dotted, "value": value, "promoted": context.is_promoted(prop)}
        if isinstance(value, str) and len(value) > _PLAIN_CHARACTERS:
            row |= {"value": value[:_PLAIN_CHARACTERS] + "…", "length": len(value)}
        rows.append(row)
    return rows


def _predicate_as_plain(predicate: PredicateExplanation) -> dict[str, Any]:
    return {
        "predicate": _said(predicate),
        "holds": predicate.holds,
        "reason": predicate.reason.value,
        "wanted": predicate.predicate.value,
        "met": _cut(predicate.met),
        "words": _cut(predicate.words),
    }


def _show_context(context: Context) -> None:
    from postroom.filters.text import format_value

    rows = [
        (prop.dotted, _short(format_value(context[prop])), context.is_promoted(prop))
        for prop in islice(context, _PROPERTIES)
    ]
    # The name of a distinguished field is its whole path, which would make every line as wide as a page.
    width = max((len(name) for name, _, _ in rows if len(name) <= _WIDEST_PREDICATE), default=0)
    for name, value, promoted in rows:
        note = "" if promoted else "  (written, not routed by)"
        click.echo(f"  {name:<{width}} = {value}{note}")
    if context.predicates:
        click.echo(f"  asks of its receivers: {_required(context.predicates)}")
    if len(context) > len(rows):
        click.echo(f"  and {len(context) - len(rows):,} more properties; -o json shows all")


def _required(predicates: Iterable[MessagePredicate]) -> str:
    from postroom.filters.text import format_value

    rows = sorted((_dotted(key), format_value(value)) for key, value in predicates)
    return ", ".join(f"{name} = {value}" for name, value in rows)


def _required_rows(predicates: Iterable[MessagePredicate]) -> list[dict[str, Any]]:
    rows = [{"property": _dotted(key), "value": value} for key, value in predicates]
    return sorted(rows, key=lambda row: (row["property"], str(row["value"])))


def _dotted(key: str) -> str:
    from postroom.namespaces import dotted_name, split_key

    return dotted_name(*split_key(key))


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}… ({len(text):,} characters)"


def _cut(value: object) -> object:
    return value[:_PLAIN_CHARACTERS] + "…" if isinstance(value, str) and len(value) > _PLAIN_CHARACTERS else value


def mark(good: bool) -> str:
    """Yes or no at the beginning of a line."""
    return click.style("✓", fg="green") if good else click.style("✗", fg="red")


def _verdict_mark(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explain.explanation import Verdict

    if subscriber.verdict in (Verdict.SUSPENDS, Verdict.NOT_AUTHORISED, Verdict.NOT_ENLISTED):
        return click.style("○", fg="yellow")
    return mark(subscriber.explanation.holds)


def _said(predicate: PredicateExplanation) -> str:
    from postroom.filters.text import format_predicate

    return format_predicate(predicate.predicate)


def _in_words(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explain.explanation import Verdict

    match subscriber.verdict:
        case Verdict.RECEIVES:
            return "receives it"
        case Verdict.SUSPENDS:
            return f"keeps it suspended until {_are_started(subscriber, 'is')}"
        case Verdict.NOT_AUTHORISED:
            return f"may not receive it: host {subscriber.host} does not show {_required(subscriber.unmet)}"
        case Verdict.NOT_ENLISTED:
            return f"would receive it, if {_are_started(subscriber, 'were')}"
        case _ if subscriber.directed_only:
            return "has no filter: it receives only what is directed to it"
        case _:
            return f"misses it by {failed_in_words(subscriber.explanation.nearest)}"


def _are_started(subscriber: SubscriberExplanation, verb: str) -> str:
    """``group Everyone is started: postroom group start Everyone``"""
    waiting = subscriber.not_started
    if not waiting:
        return f"its service {verb} started"
    several = {"is": "are"}.get(verb, verb) if len(waiting) > 1 else verb
    commands = "; ".join(f"postroom {one.kind} start {shlex.quote(one.name)}" for one in waiting)
    return f"{' and '.join(f'{one.kind} {one.name}' for one in waiting)} {several} started: {commands}"


def failed_in_words(group: GroupExplanation) -> str:
    """How many predicates of a group fail."""
    count = sum(not predicate.holds for predicate in group.predicates)
    return "one predicate" if count == 1 else f"{count} predicates"
