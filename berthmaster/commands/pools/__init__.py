"""`berthmaster pools`: what there should be of warm pools."""

from __future__ import annotations

import importlib
import pkgutil

import click


class _Group(click.Group):
    """Finds its sub-commands in the modules beside it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return what can be asked, sorted."""
        return sorted(module.name for module in pkgutil.iter_modules(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command, None if there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return found


@click.group(cls=_Group, no_args_is_help=True)
def command() -> None:
    """Ask about all warm pools together."""
