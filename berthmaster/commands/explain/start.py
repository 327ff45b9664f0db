"""`berthmaster explain start POD`."""

from __future__ import annotations

import json

import click
import msgspec
from rich.markup import escape

from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.starts import Told, told_of, words
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError, BerthmasterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.starts.reading import StartPod

_TIMEOUT_S = 10.0


class _Event(msgspec.Struct, rename="camel"):
    note: str | None = None


class _Events(msgspec.Struct):
    items: list[_Event] = msgspec.field(default_factory=list)


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@kubeconfig_option
@json_option
def command(pod: str, namespace: str, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Say what the start of POD was spent on, and whether a warm node was there for it."""
    if "/" in pod:
        namespace, _, pod = pod.partition("/")
    told = run(_read(namespace, pod, kubeconfig, context))
    if as_json:
        click.echo(json.dumps(told.document(), indent=2))
        return
    console = output()
    for line in words(told):
        console.print(escape(line))


async def _read(namespace: str, name: str, kubeconfig: str | None, context: str | None) -> Told:
    clock = SystemClock()
    async with Client(connect(kubeconfig, context), clock, user_agent=labels.FIELD_MANAGER) as client:
        try:
            pod = msgspec.json.decode(await client.get(paths.pod(namespace, name), timeout_s=_TIMEOUT_S), type=StartPod)
        except NotFound:
            raise BerthmasterError(f"no pod {namespace}/{name}") from None
        except (ApiError, msgspec.MsgspecError) as error:
            raise BerthmasterError(f"cannot read pod {namespace}/{name}: {error}") from error
        params = {"fieldSelector": f"regarding.name={name},reason=Pulled"}
        try:
            raw = await client.get(paths.events(namespace), params, timeout_s=_TIMEOUT_S)
            notes = [event.note or "" for event in msgspec.json.decode(raw, type=_Events).items]
        except (ApiError, msgspec.MsgspecError):
            notes = []  # without the right to see events, gaps count as pulling
    return told_of(pod, notes, clock.now_s())
