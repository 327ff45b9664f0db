"""Tokens for one repository, got as the registry's challenge says."""

from __future__ import annotations

import asyncio

import msgspec
from yarl import URL

from fleet.clock import Clock
from warmpool.fetch.errors import Refused
from warmpool.fetch.registry.challenge import Challenge, Credential, challenges
from warmpool.fetch.web import Anonymous, FixedHeader, Web

_LARGEST_BYTES = 2**20
# What the token specification of the distribution project says where the answer says nothing.
_USUAL_LIFE_S = 60.0
_EARLY_S = 10.0


class _Answer(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: float = _USUAL_LIFE_S


class RegistryAuthorizer:
    """Answers a registry's challenges: anonymous, basic, or bearer tokens (Docker registry v2 token specification).

    User and password go to the registry itself, or to the realm that it names over TLS; nowhere else.
    """

    def __init__(self, web: Web, registry: URL, scope: str, credential: Credential | None, clock: Clock) -> None:
        self._web = web
        self._origin = registry.origin()
        self._scope = scope
        self._credential = credential
        self._clock = clock
        self._header: str | None = None
        self._challenge: Challenge | None = None
        self._until_s = float("inf")
        self._asking = asyncio.Lock()
        if credential is not None and credential.registry_token:
            self._header = f"Bearer {credential.registry_token}"

    async def header(self, url: URL) -> str | None:
        """Return the header for the registry; a token about to expire is renewed before."""
        if url.origin() != self._origin:
            return None
        if self._challenge is not None and self._clock.monotonic_s() > self._until_s:
            async with self._asking:
                if self._clock.monotonic_s() > self._until_s:
                    await self._renew(self._challenge)
        return self._header

    async def challenged(self, url: URL, challenges_: list[str]) -> bool:
        """Get what the registry asks for; False where there is nothing more to show."""
        if url.origin() != self._origin:
            return False
        refused = self._header
        found = challenges(challenges_)
        async with self._asking:
            if self._header != refused:
                return True
            for challenge in found:
                if challenge.scheme == "bearer" and challenge.parameters.get("realm"):
                    await self._renew(challenge)
                    return True
            basic = self._credential.basic if self._credential is not None else None
            if basic is not None and basic != refused and any(challenge.scheme == "basic" for challenge in found):
                self._header = basic
                return True
        return False

    async def _renew(self, challenge: Challenge) -> None:
        realm = URL(challenge.parameters["realm"])
        is_plain_realm = realm.scheme != "https" and not (realm.scheme == "http" and self._origin.scheme == "http")
        if is_plain_realm or not realm.host:
            raise Refused(f"{self._origin}: wants credentials shown at {realm.with_query(None)}, which is not TLS")
        asked = {
            "service": challenge.parameters.get("service", ""),
            "scope": challenge.parameters.get("scope", self._scope),
        }
        asked = {name: value for name, value in asked.items() if value}
        if self._credential is not None and self._credential.identity_token:
            form = {"grant_type": "refresh_token", "client_id": "berthmaster-fetch", **asked}
            form["refresh_token"] = self._credential.identity_token
            raw = await self._web.posted(realm, form, _LARGEST_BYTES)
        else:
            basic = self._credential.basic if self._credential is not None else None
            shown = Anonymous() if basic is None else FixedHeader(realm, basic)
            raw, _ = await self._web.small(realm.update_query(asked), {}, shown, _LARGEST_BYTES)
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(f"{realm.with_query(None)}: not a token") from error
        token = answer.token or answer.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise Refused(f"{realm.with_query(None)}: an answer without a token")
        self._header, self._challenge = f"Bearer {token}", challenge
        self._until_s = self._clock.monotonic_s() + max(answer.expires_in - _EARLY_S, _EARLY_S)
