"""Generate the reference of the command line from the commands.

python -m tests.support.cli_reference          # write docs/reference/cli.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

_HEAD = """\
# Command line

Most commands have the form `postroom NOUN VERB`, such as `postroom port list`. Frequent actions are a single verb, such
as `postroom up`. Every command has `--help` with an example. This page is generated from the commands by
`python -m tests.support.cli_reference`.

## Commands

{commands}

## Options of every command

You can write them before the noun (`postroom --home DIR port list`) or after the verb
(`postroom port list --home DIR`), but not between the two. After the verb they take precedence.

{common}

A command uses the MessageBox that `--database` names. Without `--database` it uses the environment variable
`POSTROOM_DATABASE`, even if `--home` is given, because the home is also where relative paths start. Otherwise it uses
the embedded MessageBox in the home folder. If the embedded server is not running, the command starts it and stops it
again.

A table leaves out columns that do not fit the terminal. JSON has all fields.

With `-o json` standard output contains only JSON, and an error is a JSON object on standard error:
`{{"error": {{"code": …, "what": …, "why": …, "hint": …}}}}`. [Error codes](errors.md) lists the codes.

## Ids

An id can be shortened to its first digits, at least four, if no other id starts with them: `postroom instance show
e5f0ec87`. The instances of one publish often differ only in the last digits. The error for an ambiguous id lists them
with their ports and states.

## Exit codes

{exit_codes}
"""


def build_reference() -> str:
    """Return the whole page."""
    exit_codes = inspect.getdoc(ExitCode) or ""
    rows = re.findall(r"^ *(\d+)  ([A-Z_]+) +(.+)$", exit_codes, re.MULTILINE)
    head = _HEAD.format(
        commands=_build_overview(),
        common=_build_table(_list_common_options()),
        exit_codes="\n".join(
            [
                "| code | name | meaning |",
                "|---|---|---|",
                *(f"| {n} | {name} | {text} |" for n, name, text in rows),
            ]
        ),
    )
    return "\n".join([head, *_build_sections(cli, ())])


def _build_overview() -> str:
    context = click.Context(cli)
    rows = ["| command | verbs | purpose |", "|---|---|---|"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        verbs = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
        cells = ", ".join(f"[`{verb}`](#postroom-{name}-{verb})" for verb in verbs)
        rows.append(f"| [`{name}`](#postroom-{name}) | {cells} | {command.get_short_help_str(limit=200)} |")
    return "\n".join(rows)


def _build_sections(group: click.Group, words: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield _build_section(command, (*words, name))
        if isinstance(command, click.Group):
            yield from _build_sections(command, (*words, name))


def _build_section(command: click.Command, words: tuple[str, ...]) -> str:
    text, examples = _parse_help(command)
    spelled = " ".join(("postroom", *words))
    parts = [f"{'#' * (len(words) + 1)} {spelled}", text]
    if not isinstance(command, click.Group):
        usage = " ".join([spelled, *command.collect_usage_pieces(click.Context(command))])
        parts.append(f"```text\n{usage}\n```")
        options = [
            parameter
            for parameter in command.params
            if isinstance(parameter, click.Option)
            and not parameter.hidden
            and parameter.name not in _list_common_names()
        ]
        if options:
            parts.append(_build_table(options))
    # The example of a group repeats that of one of its commands.
    if examples and not isinstance(command, click.Group):
        lines = "".join(f"$ {line}\n" for line in examples)
        parts.append(f"```console\n{lines}```")
    return "\n\n".join(parts) + "\n"


def _parse_help(command: click.Command) -> tuple[str, list[str]]:
    """Return the paragraphs of the help, and its examples."""
    text, _, rest = inspect.cleandoc(command.help or "").partition("\b\nExample")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return "\n\n".join(paragraphs), [line.strip() for line in rest.splitlines()[1:] if line.strip()]


def _list_common_options() -> list[click.Option]:
    return [parameter for parameter in cli.params if isinstance(parameter, click.Option)]


def _list_common_names() -> set[str | None]:
    return {option.name for option in _list_common_options()}


def _build_table(options: list[click.Option]) -> str:
    rows = ["| option | meaning |", "|---|---|"]
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.opts)
        value = "" if option.is_flag else f" `{option.make_metavar(click.Context(cli))}`"
        rows.append(f"| {_escape_cell(names + value)} | {_escape_cell(_describe_option(option))} |")
    return "\n".join(rows)


def _describe_option(option: click.Option) -> str:
    text = " ".join((option.help or "").split())
    return f"{text} [default: {option.default}]" if option.show_default and not option.is_flag else text


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(build_reference(), encoding="utf-8")
