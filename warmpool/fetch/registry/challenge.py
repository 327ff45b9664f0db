"""How a registry asks for credentials, and which of ours answer it. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from warmpool.fetch.errors import Refused
from warmpool.fetch.registry.reference import DOCKER_HUB

_SCHEME = re.compile(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s+|\Z)")
_PARAMETER = re.compile(r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|\Z)')
_HUB_NAMES = ("index.docker.io/v1", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One WWW-Authenticate header.

    Attributes:
        scheme: "basic" or "bearer", lower case, or something that is not known here.
        parameters: realm, service, scope.
    """

    scheme: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a pull secret holds for one registry; never shown.

    Attributes:
        user: Empty where only a token is there.
        identity_token: A refresh token for OAuth 2, empty where there is none.
        registry_token: A bearer token to send as it is, empty where there is none.
    """

    user: str = ""
    password: str = ""
    identity_token: str = ""
    registry_token: str = ""

    def __repr__(self) -> str:
        """Return nothing that could be misused."""
        return f"Credential(user={self.user!r})"

    @property
    def basic(self) -> str | None:
        """Return the value of an Authorization header, None without a user."""
        if not self.user:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def challenges(headers: Iterable[str]) -> tuple[Challenge, ...]:
    """Return the challenges, one a header, as registries send them (RFC 9110 11.6.1)."""
    found = []
    for header in headers:
        scheme = _SCHEME.match(header)
        if scheme is None:
            continue
        parameters: dict[str, str] = {}
        position = scheme.end()
        while (part := _PARAMETER.match(header, position)) is not None:
            name, quoted, bare = part.groups()
            parameters.setdefault(name.lower(), bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
            position = part.end()
        found.append(Challenge(scheme=scheme.group(1).lower(), parameters=parameters))
    return tuple(found)


def credentials(raw: bytes, place: str) -> dict[str, Credential]:
    """Return the credentials of a docker config.json, or of the older .dockercfg, by registry as they name it.

    Credential helpers are programs and are not run here; what only they know is not in the answer.

    Raises:
        Refused: It is no such file.
    """
    try:
        document = json.loads(raw)
        entries = document.get(
            "auths", document if "credsStore" not in document and "credHelpers" not in document else {}
        )
        return {str(name): _credential(entry) for name, entry in entries.items() if isinstance(entry, dict)}
    except (ValueError, AttributeError, binascii.Error) as error:
        # Not the error's own words: they could quote the file.
        raise Refused(f"{place}: not a docker config.json ({type(error).__name__})") from None


def _credential(entry: Mapping[str, Any]) -> Credential:
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        decoded = base64.b64decode(str(entry["auth"]), validate=True).decode()
        user, _, password = decoded.rstrip("\0").partition(":")
    return Credential(
        user=user,
        password=password,
        identity_token=str(entry.get("identitytoken") or ""),
        registry_token=str(entry.get("registrytoken") or ""),
    )


def fitting(known: Mapping[str, Credential], registry: str, repository: str) -> Credential | None:
    """Return the credential for a repository, None for nobody: the entry with the longest fitting path.

    Entries may carry a scheme, a path and `*` within parts of the host, as the kubelet reads them (Kubernetes
    documentation, "Images: config.json"); docker.io also goes by its old names.
    """
    best: tuple[int, Credential] | None = None
    for name, credential in known.items():
        entry = name.removeprefix("https://").removeprefix("http://").rstrip("/")
        for alias in _HUB_NAMES:
            entry = DOCKER_HUB if entry == alias else entry
        host, _, path = entry.partition("/")
        path = path if path not in {"v1", "v2"} else ""
        is_under = not path or repository == path or repository.startswith(f"{path}/")
        if is_under and _same_host(host, registry) and (best is None or len(entry) > best[0]):
            best = (len(entry), credential)
    return best[1] if best is not None else None


def _same_host(pattern: str, host: str) -> bool:
    """Return whether they fit part by part; `*` never reaches over a dot, and ports are equal."""
    wanted, given = pattern.lower().split("."), host.lower().split(".")
    return len(wanted) == len(given) and all(
        fnmatchcase(part, glob.replace("[", "[[]")) for glob, part in zip(wanted, given, strict=True)
    )
