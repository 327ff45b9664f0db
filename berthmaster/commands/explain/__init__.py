"""`berthmaster explain`: why a pod is where it is, why an autoscaler has so many replicas, a pool so many nodes."""

from __future__ import annotations

import importlib
import pkgutil

import click


class PodByDefault(click.Group):
    """Finds its sub-commands in the modules beside it; what is none of them is the name of a pod."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return what can be explained, sorted."""
        return sorted(module.name for module in pkgutil.iter_modules(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command, None if there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `explain POD` and `explain --option POD` as `explain pod ...`."""
        if args and args[0] not in self.list_commands(ctx) and args[0] not in ctx.help_option_names:
            args = ["pod", *args]
        return super().parse_args(ctx, args)


@click.group(cls=PodByDefault, no_args_is_help=True, subcommand_metavar="POD | COMMAND NAME [OPTIONS]")
def command() -> None:
    """Say why a POD is where it is, an autoscaler has its replicas, a pool its nodes, and a start took so long."""
