"""`postroom subscription`: list, show and test subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command, add_show_command
from postroom.cli.options import ID, CommandOptions, common_options, limit_option, property_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.operations.connection import Connection
    from postroom.operations.short_ids import ShortId
    from postroom.operations.subscriptions import StoredSubscription


@click.group(cls=CommandGroup)
def subscription() -> None:
    """List subscriptions and test messages against them.

    \b
    Example:
      postroom subscription list
    """


def _list_subscriptions(
    connection: Connection, instance: ShortId | None, **conditions: Any
) -> list[StoredSubscription]:
    from postroom.operations.short_ids import find_id
    from postroom.operations.subscriptions import list_subscriptions

    instance_id = None if instance is None else find_id(connection, instance, "subscriber")
    return list_subscriptions(connection, instance_id=instance_id, **conditions)


add_list_command(
    subscription,
    _list_subscriptions,
    "subscription_id service_name group type instance_id state host priority filter",
    help="List the subscriptions.",
    example="Example:\n  postroom subscription list --service Europe -o json",
    options=[
        click.option(
            "--type",
            "subscription_type",
            type=click.Choice(["activation", "instance"]),
            help="Only subscriptions of this type.",
        ),
        click.option(
            "--service",
            metavar="NAME",
            help="Only subscriptions of this service (such as a send port) or through this group.",
        ),
        click.option("--instance", type=ID, help="Only subscriptions of this service instance."),
    ],
    limit=200,
    empty="No subscriptions.",
    optional="priority group host type",
    shown_if={"instance_id": bool},
)


add_show_command(
    subscription,
    "postroom.operations.subscriptions:get_subscription_details",
    help="Show a subscription and its filter. SUBSCRIPTION is its id or the name of its service.",
    example="Europe",
    argument="subscription",
    tables={"expression": ["group", "property", "operator", "value"]},
)

_SUBSCRIPTION = click.argument("subscription", required=False)
_FILTER = click.option("--filter", "text", metavar="TEXT", help="Use this filter instead of a subscription.")


@subscription.command()
@_SUBSCRIPTION
@_FILTER
@property_options
@common_options
def test(
    options: CommandOptions,
    subscription: str | None,
    text: str | None,
    promoted: tuple[str, ...],
    written: tuple[str, ...],
    require: tuple[str, ...],
) -> None:
    """Test whether a subscription or a filter matches a message with the given properties.

    The exit code is 0 if it matches, and 1 if it does not match or the host may not receive the message. For a send
    port that is not enlisted, the filter that it would have is tested.

    \b
    Examples:
      postroom subscription test BigOrders --promoted Orders.Total=12000
      postroom subscription test --filter "Region == 'EU' and Total >= 10000" -p Region=EU -p Total=12000
    """
    from postroom.cli.exit_codes import ExitCode
    from postroom.cli.rendering.explanation_text import show_filter_result, show_groups, show_subscriber
    from postroom.filters.explain import explain
    from postroom.filters.text import parse
    from postroom.operations.explain.explanation import explain_subscription
    from postroom.operations.explain.records import record_filter, record_subscriber
    from postroom.operations.properties import parse_context, read_deployed_properties

    _check_arguments(subscription, text)
    with open_messagebox(options) as connection:
        known = read_deployed_properties(connection)
        context = parse_context(promoted, written, known, require)
        explained = None if subscription is None else explain_subscription(connection, subscription, context)
    if explained is not None:
        matches = explained.explanation.holds and not explained.unmet
        if options.output is Format.JSON:
            click.echo(to_json(record_subscriber(explained)))
        else:
            show_subscriber(explained)
    else:
        filter = parse(text or "", known)
        explanation = explain(filter, context.promoted, context.written)
        matches = explanation.holds
        if options.output is Format.JSON:
            click.echo(to_json(record_filter(filter, explanation)))
        else:
            show_filter_result(explanation)
            show_groups(explanation)
    if not matches:
        raise click.exceptions.Exit(ExitCode.FAILED)


@subscription.command()
@_SUBSCRIPTION
@_FILTER
@limit_option(default=20, help="Maximum number of messages to show.")
@limit_option("--among", default=100_000, help="Maximum number of messages to search, the latest first.")
@common_options
def explain(options: CommandOptions, subscription: str | None, text: str | None, limit: int, among: int) -> None:
    """Show which stored messages a subscription or a filter matches, the latest first.

    Use it to test a filter. If no message matches, the nearest ones are shown with the predicates that fail. Nothing is
    routed: a subscription receives only messages that are published after it was created.

    \b
    Examples:
      postroom subscription explain BigOrders
      postroom subscription explain --filter "Region == 'EU' and Total >= 10000" --limit 5
    """
    from postroom.cli.rendering.explanation_text import show_matches
    from postroom.filters.text import parse
    from postroom.operations.explain.matching_messages import find_matching_messages, find_messages_of_subscription
    from postroom.operations.explain.records import record_matches
    from postroom.operations.properties import read_deployed_properties

    _check_arguments(subscription, text)
    with open_messagebox(options) as connection:
        if subscription is None:
            filter = parse(text or "", read_deployed_properties(connection))
            found = find_matching_messages(connection, filter, limit=limit, among=among)
        else:
            found = find_messages_of_subscription(connection, subscription, limit=limit, among=among)
    if options.output is Format.JSON:
        click.echo(to_json(record_matches(found)))
    else:
        show_matches(found)


def _check_arguments(subscription: str | None, text: str | None) -> None:
    if (subscription is None) == (text is None):
        raise click.UsageError("Give either a subscription (its id or the name of its service) or --filter.")
