"""`postroom role`: who may do what."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, pass_options
from postroom.cli.rendering.output import show_rows

_ROLE = click.argument("role", metavar="ROLE")
_LOGIN = click.argument("login", metavar="LOGIN")


@click.group(cls=CommandGroup)
def role() -> None:
    """See who may do what, and give logins their roles.

    Administrators may do everything but upgrade the MessageBox and make hosts, which its owner does. Operators start,
    stop, resume and terminate; they see neither bodies nor properties of messages. The role of a host is what its
    processes log in with.

    \b
    Example:
      postroom role grant operators alice
    """


@role.command("list")
@common_options
@pass_options
def list_(options: CommandOptions) -> None:
    """List the roles, and the logins that have them.

    \b
    Example:
      postroom role list -o json
    """
    from dataclasses import asdict

    from postroom.operations.roles import list_roles

    with open_messagebox(options) as connection:
        rows = [asdict(one) for one in list_roles(connection)]
    show_rows(rows, ["name", "role_name", "logins"], options.output)


@role.command()
@_ROLE
@_LOGIN
@common_options
@pass_options
def grant(options: CommandOptions, role: str, login: str) -> None:
    """Give a login of the PostgreSQL server a role: administrators, operators, or host:NAME.

    A login cannot run both a trusted host and one that is not.

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
@common_options
@pass_options
def revoke(options: CommandOptions, role: str, login: str) -> None:
    """Take a role away from a login. Connections that are open lose it at once.

    \b
    Example:
      postroom role revoke operators alice
    """
    from postroom.operations.roles import revoke_role

    with open_messagebox(options) as connection:
        revoke_role(connection, role, login)
    click.echo(f"{login} does not have the role {role} any more.")
