"""`lingua config`: the settings in effect and their origins."""

import os
from itertools import groupby
from typing import Any

import click

from lingua_scheduler.cli.options import Options, json_option, pass_options
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.cli.views.table import Column, table
from lingua_scheduler.services.runtime.settings.settings import (
    SettingRow,
    Settings,
    load_settings,
    unknown_variables,
)


@click.command()
@json_option
@pass_options
def config(options: Options) -> None:
    """Show every setting, its value and its origin.

    A value comes from the environment, or else from the profile (LINGUA_PROFILE), or else is the
    default. Fails with exit code 2 if a value is not allowed.
    """
    unknown = unknown_variables(os.environ)
    for variable, nearest in unknown:
        hint = f"; did you mean {nearest}?" if nearest else ""
        click.echo(f"Warning: {variable} is set, but there is no such setting{hint}", err=True)
    settings = load_settings()
    if options.json:
        print_json(
            {
                "settings": [_document(settings, row) for row in settings.rows()],
                "unknown_variables": [
                    {"variable": variable, "nearest": nearest} for variable, nearest in unknown
                ],
            }
        )
    else:
        click.echo(_table(settings))


def _document(settings: Settings, row: SettingRow) -> dict[str, Any]:
    value = getattr(settings, row.name)
    # For text, use the row's value, in which passwords are hidden.
    return {**row._asdict(), "value": row.value if isinstance(value, str) else value}


def _table(settings: Settings) -> str:
    rows: list[tuple[str, ...]] = []
    for group, members in groupby(settings.rows(), key=lambda row: row.group):
        rows.append(("", "", "", ""))
        rows.append((click.style(f"[{group}]", bold=True), "", "", ""))
        for row in members:
            origin = row.origin if row.origin == "default" else click.style(row.origin, fg="cyan")
            rows.append((row.variable, row.value or '""', origin, row.description))
    return table(
        (
            *(Column("VARIABLE"), Column("VALUE"), Column("ORIGIN")),
            Column("DESCRIPTION", 1, folds=True),
        ),
        rows,
    )
