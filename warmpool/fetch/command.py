"""`berthmaster-fetch`, also `berthmaster fetch`."""

from __future__ import annotations

import json
import platform as machine
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fleet.errors import BerthmasterError
from warmpool.fetch.errors import Refused
from warmpool.fetch.registry import challenge, reference
from warmpool.fetch.run import Settings, config_file, fetch_files, fetch_one_image, run
from warmpool.fetch.wanted import Item, check_names, item, listed

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_EXIT = """
Ends with 0 when all is there and right; 1 refused or not found; 2 usage; 3 wrong content; 4 no room on the disk;
5 source unavailable; 130 or 143 stopped. After 4, 5, 130 and 143 the same command goes on
where it was.
"""

F = TypeVar("F", bound=Callable[..., Any])


def _streams(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == "auto":
        return None
    if value.isascii() and value.isdigit() and 1 <= int(value) <= 64:
        return int(value)
    raise click.BadParameter("a number from 1 to 64, or auto")


def _common(function: F) -> F:
    options = (
        click.option("--streams", default="8", show_default=True, callback=_streams, help="How many at once, or auto."),
        click.option(
            "--cache",
            "caches",
            multiple=True,
            envvar="BERTHMASTER_FETCH_CACHES",
            help="Folder or http(s) address with blobs/sha256/HEX in it, asked first; may be repeated.",
        ),
        click.option(
            "--keep",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder that becomes such a cache (hard links).",
        ),
        click.option("--reserve", default="1Gi", show_default=True, help="Stays free on the disk."),
        click.option("--retries", default=6, show_default=True, type=click.IntRange(0, 20), help="Failures in a row."),
        click.option(
            "--ca-file", type=click.Path(dir_okay=False), help="Authorities to trust instead of the system's."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--quiet", "is_quiet", is_flag=True, help="Show no progress."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _file_options(function: F) -> F:
    function = click.option("--s3-endpoint", help="Of a service that speaks like S3; else AWS_ENDPOINT_URL.")(function)
    return click.option(
        "--token-file", type=click.Path(dir_okay=False), help="Bearer token for the addresses' own hosts, over https."
    )(function)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT)
def command() -> None:
    """Fetch model artifacts and container images: in parallel ranges, resumed, checked, never half under its name."""


@command.command("file", epilog=_EXIT)
@click.argument("urls", nargs=-1, required=True)
@click.option(
    "--into", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder; this one by default."
)
@click.option("--name", help="Name in the folder, for one address.")
@click.option("--sha256", help="Checksum, for one address; or write it as URL#sha256=HEX.")
@_file_options
@_common
def file(urls: tuple[str, ...], into: Path, name: str | None, sha256: str | None, **given: Any) -> None:
    """Fetch files from http(s)://, s3:// or file:// addresses; s3://bucket/prefix/ means all objects under it."""

    def wishes() -> tuple[Item, ...]:
        if len(urls) > 1 and (name is not None or sha256 is not None):
            raise click.UsageError("--name and --sha256 are for one address")
        found = tuple(item(url, name=name, sha256=sha256) for url in urls)
        check_names(found)
        return found

    _answer(lambda settings: fetch_files(wishes(), into, settings), given)


@command.command("list", epilog=_EXIT)
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder.")
@_file_options
@_common
def list_(path: Path, into: Path, **given: Any) -> None:
    """Fetch the files of a YAML or JSON list: entries with url, and optionally sha256 and path (below the folder)."""

    def wishes() -> tuple[Item, ...]:
        try:
            return listed(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"{path}: {error}") from error

    _answer(lambda settings: fetch_files(wishes(), into, settings), given)


@command.command("image", epilog=_EXIT)
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="OCI image layout; made where there is none.",
)
@click.option("--platform", help="os/architecture[/variant], or all; this machine's by default.")
@click.option(
    "--docker-config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Pull secret: config.json, .dockerconfigjson or .dockercfg; else $DOCKER_CONFIG or ~/.docker.",
)
@click.option(
    "--plain-http", is_flag=True, help="The registry speaks no TLS (on this machine that is tried by itself)."
)
@_common
def image(
    name: str, into: Path, platform: str | None, docker_config: Path | None, plain_http: bool, **given: Any
) -> None:
    """Fetch a container image (registry/repository:tag@digest) into an OCI image layout."""
    wanted = platform or f"linux/{_ARCHITECTURES.get(machine.machine(), machine.machine())}"

    def settings_and_go(settings: Settings) -> Any:
        parsed = reference.parsed(name)
        found = config_file(docker_config)
        known = challenge.credentials(found[1], str(found[0])) if found is not None else {}
        credential = challenge.fitting(known, parsed.registry, parsed.repository)
        is_plain = plain_http or parsed.is_loopback
        return fetch_one_image(parsed, credential, into, wanted, settings, is_plain=is_plain)

    _answer(settings_and_go, {"token_file": None, "s3_endpoint": None} | given)


def _answer(work: Callable[[Settings], Any], given: dict[str, Any]) -> None:
    """Do the work and print what it gave; an expected failure is one line on stderr and its exit status."""
    as_json = given.pop("as_json")
    try:
        settings = Settings.given(**given)
        answer = run(work(settings))
    except BerthmasterError as error:
        click.echo(f"berthmaster-fetch: {error}", err=True)
        raise SystemExit(getattr(error, "exit_status", 1)) from None
    click.echo(json.dumps(answer.document(), indent=2) if as_json else answer.text())


def main() -> None:
    """Run the command."""
    command(prog_name="berthmaster-fetch")
