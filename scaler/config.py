"""What an operator may set of the scaler's controller, and the sources of load that autoscalers name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleet.errors import ConfigError

_FIELDS = frozenset({"url", "urls", "tokenFile", "caFile", "certFile", "keyFile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerSettings:
    """Settings of the controller.

    Attributes:
        namespace: Where the leadership lease lives.
        sources: File that names balancers and Prometheus servers; "" = none.
        history_token: File with the token that readers of the history must show; "" = the history is not served.
        sets_deletion_cost: Mark the replicas that should go first (an annotation on pods) before a Deployment shrinks.
    """

    namespace: str = "berthmaster-system"
    sources: str = ""
    history_token: str = ""
    sets_deletion_cost: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """One source of load.

    Attributes:
        name: As autoscalers say it.
        urls: Base addresses; several where several balancers share the traffic.
        token_file: Bearer token to show; None = none is asked for.
        ca_file: Whom to trust instead of the system's authorities.
        cert_file: Own certificate to show, with `key_file`.
        key_file: Its key.
    """

    name: str
    urls: tuple[str, ...]
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sources, by name."""

    balancers: Mapping[str, SourceSettings] = field(default_factory=dict)
    prometheus: Mapping[str, SourceSettings] = field(default_factory=dict)


class SourcesFile:
    """The sources as their file says now; what it said last that was valid holds until then.

    Attributes:
        sources: In force.
    """

    def __init__(self, path: str) -> None:
        """Read it.

        Raises:
            ConfigError: It cannot be read, or with everything in it that is wrong.
        """
        self._path = path
        self._seen = self._state()
        self.sources = sources_from(path)

    def renew(self) -> bool:
        """Read it again if it has changed, and return whether it says something else; a wrong one is told once.

        Raises:
            ConfigError: It has changed and cannot be read, or with everything in it that is wrong.
        """
        seen = self._state()
        if seen == self._seen:
            return False
        self._seen = seen
        before, self.sources = self.sources, sources_from(self._path)
        return self.sources != before

    def _state(self) -> tuple[int, int, int] | None:
        if not self._path:
            return None
        try:
            found = Path(self._path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def sources_from(path: str) -> Sources:
    """Return the sources that a YAML file names; no path, no sources.

    The file holds two maps, `balancers` and `prometheus`, from name to url (or urls), tokenFile, caFile, certFile and
    keyFile. A token never stands in it.

    Raises:
        ConfigError: It cannot be read, or with everything in it that is wrong.
    """
    if not path:
        return Sources()
    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError([f"sources {path}: {error.strerror}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"sources {path}: not YAML: {error}"]) from error
    return parsed(content or {})


def parsed(content: Any) -> Sources:
    """Return the sources of a parsed file.

    Raises:
        ConfigError: With everything that is wrong.
    """
    problems: list[str] = []
    if not isinstance(content, dict):
        raise ConfigError(["sources: must hold the maps balancers and prometheus"])
    problems.extend(f"sources: {name!r} is neither balancers nor prometheus" for name in content.keys() - _KINDS)
    found = Sources(
        balancers=_named("balancers", content.get("balancers") or {}, problems),
        prometheus=_named("prometheus", content.get("prometheus") or {}, problems),
    )
    if problems:
        raise ConfigError(problems)
    return found


_KINDS = frozenset({"balancers", "prometheus"})


def _named(kind: str, content: Any, problems: list[str]) -> dict[str, SourceSettings]:
    if not isinstance(content, dict):
        problems.append(f"sources: {kind} must map names to settings")
        return {}
    found = {}
    for name, given in content.items():
        where = f"sources: {kind}.{name}"
        if not isinstance(given, dict):
            problems.append(f"{where} must be a map")
            continue
        problems.extend(f"{where}.{key}: no such setting" for key in given.keys() - _FIELDS)
        urls = given.get("urls", [given.get("url")])
        if not isinstance(urls, list) or not urls or not all(_is_url(url) for url in urls):
            problems.append(f"{where}: url must be http://... or https://..., got {urls!r}")
            continue
        if any("@" in url.partition("://")[2].partition("/")[0] for url in urls):
            problems.append(f"{where}: no name and password may stand in an address: put a token into tokenFile")
            continue
        if bool(given.get("certFile")) != bool(given.get("keyFile")):
            problems.append(f"{where}: certFile and keyFile go together")
        found[str(name)] = SourceSettings(
            name=str(name),
            urls=tuple(url.rstrip("/") for url in urls),
            token_file=given.get("tokenFile"),
            ca_file=given.get("caFile"),
            cert_file=given.get("certFile"),
            key_file=given.get("keyFile"),
        )
    return found


def _is_url(url: Any) -> bool:
    return isinstance(url, str) and url.startswith(("http://", "https://"))
