"""The command line: sub-commands are imported when they are called, so that `--help` is instant."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from berthmaster import commands
from berthmaster.interrupted import leaving_quietly
from berthmaster.plain import plain
from fleet.errors import BerthmasterError


class LazyGroup(click.Group):
    """Finds each sub-command in the module of its name under `berthmaster.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all sub-commands, sorted."""
        return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command, None if there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        with leaving_quietly():
            module = importlib.import_module(f"berthmaster.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="berthmaster")
def root() -> None:
    """Place, warm and scale model-serving pods on Kubernetes."""


def run() -> None:
    """Run the command; an expected error is one line on stderr and exit status 1."""
    try:
        root()
    except BerthmasterError as error:
        click.echo(f"berthmaster: {plain(str(error))}", err=True)
        sys.exit(1)
    except OSError as error:  # of a disk that is full, say, under a file that the output goes to
        about = f"{error.filename}: " if error.filename else ""
        click.echo(f"berthmaster: {plain(about + (error.strerror or str(error)))}", err=True)
        sys.exit(1)
