"""`postroom subscription`: who subscribes to what."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Literal

import click

from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.opening import opened
from postroom.cli.output import Format, show_record, show_rows, to_json

if TYPE_CHECKING:
    from postroom.operations.subscriptions import Subscription


@click.group()
def subscription() -> None:
    """Look at subscriptions, and try messages against them.

    \b
    Example:
      postroom subscription list
    """


@subscription.command("list")
@click.option("--type", "type_", type=click.Choice(["activation", "instance"]), help="Only of this type.")
@click.option("--service", metavar="NAME", help="Only of the service of this name, such as a send port.")
@click.option("--instance", type=click.UUID, help="Only of this service instance.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="At most so many.")
@frame_options
@pass_frame
def list_(
    frame: Frame,
    type_: Literal["activation", "instance"] | None,
    service: str | None,
    instance: uuid.UUID | None,
    limit: int,
) -> None:
    """List the subscriptions.

    \b
    Example:
      postroom subscription list --service Europe -o json
    """
    from postroom.operations.subscriptions import list_subscriptions

    with opened(frame) as connection:
        found = list_subscriptions(
            connection, subscription_type=type_, service=service, instance_id=instance, limit=limit
        )
    columns = ["subscription_id", "service_name", "type", "state", "host", "priority", "filter"]
    show_rows([_row(one) for one in found], columns, frame.output, empty="No subscriptions.")


@subscription.command()
@click.argument("subscription")
@frame_options
@pass_frame
def show(frame: Frame, subscription: str) -> None:
    """Show all about one subscription, given by its id or by the name of its service.

    \b
    Example:
      postroom subscription show Europe
    """
    from postroom.filters.text import format_property
    from postroom.operations.subscriptions import filters_of, subscription_called

    with opened(frame) as connection:
        found = subscription_called(connection, subscription)
        filter = filters_of(connection, [found])[found.subscription_id]
    expression = [
        {
            "group": number,
            "property": format_property(predicate.property),
            "operator": predicate.operator.symbol,
            "value": predicate.value,
        }
        for number, group in enumerate(filter.groups, 1)
        for predicate in group
    ]
    if frame.output is Format.JSON:
        click.echo(to_json({**_row(found), "expression": expression}))
        return
    show_record(_row(found), frame.output)
    click.echo()
    show_rows(expression, ["group", "property", "operator", "value"], frame.output)


@subscription.command()
@click.argument("subscription")
@click.option("-p", "--property", "properties", multiple=True, metavar="PROPERTY=VALUE", help="A promoted property.")
@click.option("-w", "--written", multiple=True, metavar="PROPERTY=VALUE", help="A written property.")
@frame_options
@pass_frame
def test(frame: Frame, subscription: str, properties: tuple[str, ...], written: tuple[str, ...]) -> None:
    """Try a message with the given properties against one subscription; the exit code is 1 if it misses.

    \b
    Example:
      postroom subscription test BigOrders --property Orders.Total=12000
    """
    from postroom.cli.exit_codes import ExitCode
    from postroom.cli.verdicts import show_subscriber, subscriber_as_plain
    from postroom.operations.explaining import explain_context
    from postroom.operations.properties import context_of, deployed_properties
    from postroom.operations.subscriptions import subscription_called

    with opened(frame) as connection:
        wanted = subscription_called(connection, subscription).subscription_id
        context = context_of(properties, written, deployed_properties(connection))
        subscribers = explain_context(connection, context, title="").subscribers
    (found,) = (one for one in subscribers if one.subscription_id == wanted)
    if frame.output is Format.JSON:
        click.echo(to_json(subscriber_as_plain(found)))
    else:
        show_subscriber(found)
    if not found.explanation.holds:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _row(subscription: Subscription) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **asdict(subscription),
        "service_class": subscription.service_class.name.lower(),
        "state": subscription.state.name.lower(),
    }
