"""How the explanation of a message is written: short, aligned, with the reason in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from postroom.filters.explain import GroupExplanation, PredicateExplanation
    from postroom.message import Context
    from postroom.operations.explaining import MessageExplanation, SubscriberExplanation

_WIDEST_PREDICATE = 60


def show_explanation(explained: MessageExplanation, *, nearest: int | None = None) -> None:
    """One message with all its subscribers; ``nearest`` limits how many misses are shown."""
    from postroom.operations.explaining import Verdict

    click.secho(explained.title, bold=True)
    _show_context(explained.context)
    click.echo()
    if explained.failure is not None:
        click.echo(f"It cannot be read, and would be suspended: {explained.failure.what}")
        return
    taken = [one.name for one in explained.subscribers if one.verdict in (Verdict.RECEIVES, Verdict.SUSPENDS)]
    names = f": {', '.join(taken)}" if taken else ""
    click.echo(f"{len(taken)} of {len(explained.subscribers)} subscribers would receive it now{names}.")
    misses = [one for one in explained.subscribers if one.verdict is Verdict.MISSES]
    hidden = set() if nearest is None else {id(one) for one in misses[nearest:]}
    shown = [one for one in explained.subscribers if id(one) not in hidden]
    for subscriber in shown:
        click.echo()
        show_subscriber(subscriber)
    if hidden:
        click.echo(f"\n{len(hidden)} more miss it by more.")


def show_subscriber(subscriber: SubscriberExplanation) -> None:
    """One subscriber: the verdict, and each predicate with the value that it met."""
    where = "not enlisted" if subscriber.subscription_id is None else f"{subscriber.state} on {subscriber.host}"
    click.echo(
        f"{_verdict_mark(subscriber)} {click.style(subscriber.name, bold=True)}  {_in_words(subscriber)}  ({where})"
    )
    if subscriber.directed_only and not subscriber.explanation.holds:
        return
    groups = sorted(subscriber.explanation.groups, key=lambda group: group.distance)
    width = min(_WIDEST_PREDICATE, max(len(_said(each)) for group in groups for each in group.predicates))
    for number, group in enumerate(groups):
        if number:
            click.echo("  or")
        for predicate in group.predicates:
            click.echo(f"    {_mark(predicate.holds)} {_said(predicate):<{width}}  {reason_in_words(predicate)}")


def reason_in_words(predicate: PredicateExplanation) -> str:
    """What the predicate met."""
    from postroom.filters.explain import Reason
    from postroom.filters.text import format_value

    value = "" if predicate.met is None else format_value(predicate.met)
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
        "context": context_rows(explained.context),
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
        "distance": subscriber.explanation.distance,
        "groups": [
            {"holds": group.holds, "predicates": [_predicate_as_plain(each) for each in group.predicates]}
            for group in subscriber.explanation.groups
        ],
    }


def context_rows(context: Context) -> list[dict[str, Any]]:
    """The properties of a context, promoted ones first."""
    return [
        {"property": prop.dotted, "value": context[prop], "promoted": context.is_promoted(prop)} for prop in context
    ]


def _predicate_as_plain(predicate: PredicateExplanation) -> dict[str, Any]:
    return {
        "predicate": _said(predicate),
        "holds": predicate.holds,
        "reason": predicate.reason.value,
        "met": predicate.met,
    }


def _show_context(context: Context) -> None:
    from postroom.filters.text import format_value

    rows = [(prop.dotted, format_value(context[prop]), context.is_promoted(prop)) for prop in context]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, value, promoted in rows:
        note = "" if promoted else "  (written, not routed by)"
        click.echo(f"  {name:<{width}} = {value}{note}")


def _mark(good: bool) -> str:
    return click.style("✓", fg="green") if good else click.style("✗", fg="red")


def _verdict_mark(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explaining import Verdict

    if subscriber.verdict in (Verdict.SUSPENDS, Verdict.NOT_ENLISTED):
        return click.style("○", fg="yellow")
    return _mark(subscriber.explanation.holds)


def _said(predicate: PredicateExplanation) -> str:
    from postroom.filters.text import format_predicate

    return format_predicate(predicate.predicate)


def _in_words(subscriber: SubscriberExplanation) -> str:
    from postroom.operations.explaining import Verdict

    match subscriber.verdict:
        case Verdict.RECEIVES:
            return "receives it"
        case Verdict.SUSPENDS:
            return f"keeps it suspended until it is started: postroom port start {subscriber.name}"
        case Verdict.NOT_ENLISTED:
            return f"would receive it, if it were enlisted: postroom port start {subscriber.name}"
        case _ if subscriber.directed_only:
            return "has no filter: it receives only what is directed to it"
        case _:
            return f"misses it by {_failed(subscriber.explanation.nearest)}"


def _failed(group: GroupExplanation) -> str:
    count = sum(not predicate.holds for predicate in group.predicates)
    return "one predicate" if count == 1 else f"{count} predicates"
