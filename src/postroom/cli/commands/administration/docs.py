"""`postroom docs`: list and show the pages of the documentation, which the package contains."""

from __future__ import annotations

from pathlib import Path

import click

import postroom
from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import Format, show_rows
from postroom.errors import NotFound, suggest_names
from postroom.operations.records import to_json

_FOLDER = Path(postroom.__file__).parent / "docs"


@click.command()
@click.argument("page", required=False)
@common_options
def docs(options: CommandOptions, page: str | None) -> None:
    """List the pages of the documentation, or show one of them as Markdown.

    PAGE is a name from the list, such as how-to/monitor. Its last part is enough if no other page has the same.

    \b
    Examples:
      postroom docs
      postroom docs how-to/monitor
      postroom docs monitor
    """
    pages = {
        file.relative_to(_FOLDER).with_suffix("").as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(_FOLDER.rglob("*.md"))
    }
    if page is None:
        listed = [{"page": name, "title": text.partition("\n")[0].lstrip("# ")} for name, text in pages.items()]
        show_rows(listed, ("page", "title"), options.output)
        return
    name = page.removesuffix(".md")
    found = [known for known in pages if name in (known, known.rpartition("/")[2])]
    if len(found) != 1:
        hint = (
            f"Choose one of {', '.join(found)}." if found else suggest_names(name, pages, "The pages are", none="none")
        )
        raise NotFound(f"There is no page {page!r}." if not found else f"Several pages are named {page!r}.", hint=hint)
    if options.output is Format.JSON:
        click.echo(to_json({"page": found[0], "text": pages[found[0]]}))
    else:
        click.echo(pages[found[0]], nl=False)
