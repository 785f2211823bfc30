"""Commands that list the records of an operation, or show one of them. They are declared by the operation and the
columns of the tables.

add_list_command(role, "postroom.operations.roles:list_roles", "name role_name logins", help="List the roles.")
add_show_command(group, "postroom.operations.ports.groups:get_group_details", help="Show a send port group.")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, limit_option
from postroom.cli.rendering.output import report_truncation, show_record, show_rows

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
Operation = Callable[..., Sequence[object]]


def add_list_command(
    group: click.Group,
    operation: str | Operation,
    columns: str,
    *,
    name: str = "list",
    help: str,
    example: str,
    options: Sequence[Decorator] = (),
    limit: int | None = None,
    empty: str | Callable[..., str] = "",
    optional: str = "",
    shown_if: Mapping[str, Callable[[Any], object]] | None = None,
) -> None:
    """Add a command that lists what the operation returns for the values of the options.

    The operation is a function or its name, "module:function", which is imported when the command runs. Names of
    columns are separated by spaces. The ``optional`` ones are left out on a narrow terminal, the first of them first. A
    column in ``shown_if`` is shown only if its condition is true for a record. ``limit`` is the default of --limit. The
    operation gets one more, which shows whether the list is complete. ``empty`` is written if there are no records; it
    may be a function of the options."""

    def command(common: CommandOptions, /, **given: Any) -> None:
        found = _read(common, operation, given if limit is None else {**given, "limit": given["limit"] + 1})
        records = found if limit is None else found[: given["limit"]]
        conditions = shown_if or {}
        shown = [
            column
            for column in columns.split()
            if column not in conditions or any(conditions[column](getattr(record, column)) for record in records)
        ]
        text = empty if isinstance(empty, str) else empty(**given)
        show_rows(records, shown, common.output, empty=text, optional=optional.split())
        if limit is not None:
            report_truncation(len(found), given["limit"], common.output)

    decorated = common_options(command)
    if limit is not None:
        decorated = limit_option(default=limit)(decorated)
    for option in reversed(options):
        decorated = option(decorated)
    group.command(name, help=f"{help}\n\n\b\n{example}")(decorated)


def add_show_command(
    group: click.Group,
    operation: str,
    *,
    help: str,
    example: str,
    argument: str = "name",
    tables: Mapping[str, Sequence[str]] | None = None,
    empty: str = "",
) -> None:
    """Add a command that shows the record that the operation returns for the argument. ``tables`` are the fields that
    are lists of records, with their columns. ``empty`` is written for a list without records."""

    @click.argument(argument)
    @common_options
    def command(options: CommandOptions, /, **given: str) -> None:
        with open_messagebox(options) as connection:
            record = _import_operation(operation)(connection, given[argument])
        show_record(record, options.output, tables=tables, empty=empty)

    group.command("show", help=f"{help}\n\n\b\nExample:\n  postroom {group.name} show {example}")(command)


def _import_operation(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    operation: Callable[..., Any] = getattr(import_module(module), function)
    return operation


def _read(options: CommandOptions, operation: str | Operation, given: Mapping[str, Any]) -> Sequence[object]:
    run: Operation = _import_operation(operation) if isinstance(operation, str) else operation
    with open_messagebox(options) as connection:
        if "application" in given:
            from postroom.operations.deployment.applications import check_application

            check_application(connection, given["application"])
        return run(connection, **given)
