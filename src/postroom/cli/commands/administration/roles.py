"""`postroom role`: list, grant and revoke roles."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, change_options

_ROLE = click.argument("role", metavar="ROLE")
_LOGIN = click.argument("login", metavar="LOGIN")


@click.group(cls=CommandGroup)
def role() -> None:
    """List, grant and revoke roles.

    Administrators may do everything except upgrade the MessageBox and create hosts, which only its owner may do.
    Operators start, stop, resume and terminate. They cannot read bodies and properties of messages. The processes of a
    host log in with the role of the host.

    \b
    Example:
      postroom role grant operators alice
    """


add_list_command(
    role,
    "postroom.operations.roles:list_roles",
    "name role_name logins",
    help="List the roles and their logins.",
    example="Example:\n  postroom role list -o json",
)


@role.command()
@_ROLE
@_LOGIN
@change_options
def grant(options: CommandOptions, role: str, login: str) -> None:
    """Grant a role to a login of the PostgreSQL server. ROLE is administrators, operators or host:NAME.

    A login cannot run both a trusted and an untrusted host.

    \b
    Example:
      postroom role grant host:Main main_service
    """
    from postroom.operations.roles import grant_role

    with open_messagebox(options) as connection:
        grant_role(connection, role, login)
    click.echo(f"{login} has the role {role}.")


@role.command()
@_ROLE
@_LOGIN
@change_options
def revoke(options: CommandOptions, role: str, login: str) -> None:
    """Revoke a role from a login. Open connections lose it at once.

    \b
    Example:
      postroom role revoke operators alice
    """
    from postroom.operations.roles import revoke_role

    with open_messagebox(options) as connection:
        revoke_role(connection, role, login)
    click.echo(f"{login} no longer has the role {role}.")
