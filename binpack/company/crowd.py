"""Who is where: pods as guests on rows, and groups of guests counted per row, kept up to date pod by pod.

A group is named by what selects its members. It is made when a rule first asks for it, from the distinct guests there
are (pods of one template are one guest), and counted along from then on. What this costs a pod that no rule concerns is
a look into one dictionary.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from binpack.company.group import Group
from fleet.company import Guest, HostPort, PodTerm, Selector

_MOST_GROUPS: Final = 8192
_SLACK: Final = 4096

# Why a guest that is there keeps others away, or would rather.
ANTI: Final = "anti"
REPULSED: Final = "repulsed"


class _Selecting:
    """A group with what makes a guest its member: a selector within one namespace, or terms."""

    __slots__ = ("group", "namespace", "selector", "terms")

    def __init__(self, namespace: str, selector: Selector | None, terms: tuple[PodTerm, ...]) -> None:
        self.group = Group()
        self.namespace = namespace
        self.selector = selector
        self.terms = terms


class Crowd:
    """Guests on rows. Namespaces are known by their labels, for rules that select them so."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, int, PodTerm], Group] = {}
        self.ports: dict[tuple[int, str], dict[HostPort, Group]] = {}
        self.owners: dict[str, Group] = {}
        self._where: dict[Guest, dict[int, int]] = {}
        self._on_row: dict[int, dict[Guest, int]] = {}
        self._joined: dict[Guest, tuple[Group, ...]] = {}
        self._selecting: dict[Hashable, _Selecting] = {}
        self._of_namespace: dict[str, dict[Guest, None]] = {}
        self._idle = 0
        self._in: dict[str, list[_Selecting]] = {}
        self._anywhere: list[_Selecting] = []
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._met: dict[Guest, tuple[int, tuple[tuple[str, int, PodTerm, Group], ...]]] = {}

    # -- who comes and goes ------------------------------------------------------------------------------------

    def enter(self, guest: Guest, row: int, more: int = 1) -> None:
        """Count guests in on a row; below 0 out."""
        joined = self._joined.get(guest)
        if joined is None:
            joined = self._admit(guest)
        at = self._where[guest]
        left = at.get(row, 0) + more
        on_row = self._on_row.setdefault(row, {})
        was_idle = not at
        if left > 0:
            at[row] = on_row[guest] = left
        else:
            at.pop(row, None)
            on_row.pop(guest, None)
        self._idle += (not at) - was_idle
        for group in joined:
            group.add(row, more)

    def set_row(self, row: int, guests: Iterable[Guest]) -> None:
        """Let exactly these guests be on a row."""
        wanted: dict[Guest, int] = {}
        for guest in guests:
            wanted[guest] = wanted.get(guest, 0) + 1
        there = self._on_row.get(row, {})
        if wanted == there:
            return
        for guest, count in list(there.items()):
            if (more := wanted.pop(guest, 0) - count) != 0:
                self.enter(guest, row, more)
        for guest, count in wanted.items():
            self.enter(guest, row, count)
        if self._idle > len(self._where) // 2 + _SLACK:
            self._rebuild()

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Learn the labels of a namespace; None = it is gone. True if anything may be counted otherwise now."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        self._met.clear()
        if self._anywhere:
            self._rebuild()
        return True

    # -- who counts --------------------------------------------------------------------------------------------

    def alike(self, namespace: str, selector: Selector, *, is_hard: bool) -> Group:
        """Return the pods of a namespace that a topology spread constraint counts: leaving ones are none of them."""
        key = (namespace, selector)
        found = self._selecting.get(key)
        if found is None:
            found = self._register(key, _Selecting(namespace, selector, ()), (namespace,))
        found.group.is_hard |= is_hard
        return found.group

    def named(self, terms: tuple[PodTerm, ...], *, is_hard: bool) -> Group:
        """Return the pods that all of these terms name."""
        found = self._selecting.get(terms)
        if found is None:
            by_labels = any(term.namespace_selector is not None for term in terms)
            names = None if by_labels else sorted({name for term in terms for name in term.namespaces})
            found = self._register(terms, _Selecting("", None, terms), names)
        found.group.is_hard |= is_hard
        return found.group

    def met(self, guest: Guest) -> tuple[tuple[str, int, PodTerm, Group], ...]:
        """Return (ANTI or REPULSED, weight, term, holders) of the terms of others that name this guest."""
        if not self.holders:
            return ()
        known = self._met.get(guest)
        if known is not None and known[0] == len(self.holders):
            return known[1]
        labels = dict(guest.labels)
        of_namespace = self._namespaces.get(guest.namespace, {})
        found = tuple(
            (kind, weight, term, group)
            for (kind, weight, term), group in self.holders.items()
            if term.matches(guest.namespace, labels, of_namespace)
        )
        if len(self._met) > _SLACK:
            self._met.clear()
        self._met[guest] = (len(self.holders), found)
        return found

    def is_counted(self, guest: Guest) -> bool:
        """Return True if a hard rule counts such a guest, or keeps it away: it cannot be placed without asking."""
        joined = self._joined.get(guest)
        if joined is None:
            joined = self._admit(guest)
        return any(group.is_hard for group in joined) or any(kind == ANTI for kind, _, _, _ in self.met(guest))

    def names_itself(self, guest: Guest) -> bool:
        """Return True if the guest's own affinity terms all name it: then it may be the first of its kind."""
        return self.is_named(guest.affinity, guest)

    def is_named(self, terms: tuple[PodTerm, ...], guest: Guest) -> bool:
        """Return True if all of these terms name the guest."""
        labels, of_namespace = dict(guest.labels), self._namespaces.get(guest.namespace, {})
        return all(term.matches(guest.namespace, labels, of_namespace) for term in terms)

    # -- inside ------------------------------------------------------------------------------------------------

    def _register(self, key: Hashable, new: _Selecting, namespaces: Iterable[str] | None) -> _Selecting:
        """Count a new group from the guests there are; of these namespaces, or None = of any."""
        if len(self._selecting) >= _MOST_GROUPS:
            self._selecting.clear()
            self._in.clear()
            self._anywhere.clear()
            self._rebuild()
        self._selecting[key] = new
        if namespaces is None:
            self._anywhere.append(new)
            namespaces = tuple(self._of_namespace)
        else:
            for name in namespaces:
                self._in.setdefault(name, []).append(new)
        for name in namespaces:
            for guest in self._of_namespace.get(name, ()):
                if self._is_member(guest, dict(guest.labels), new):
                    self._joined[guest] = (*self._joined[guest], new.group)
                    for row, count in self._where[guest].items():
                        new.group.add(row, count)
        return new

    def _is_member(self, guest: Guest, labels: Mapping[str, str], of: _Selecting) -> bool:
        if of.selector is not None:
            return not guest.is_leaving and guest.namespace == of.namespace and of.selector.matches(labels)
        of_namespace = self._namespaces.get(guest.namespace, {})
        return all(term.matches(guest.namespace, labels, of_namespace) for term in of.terms)

    def _admit(self, guest: Guest) -> tuple[Group, ...]:
        """Find out which groups a new guest counts in."""
        joined = [self.owners.setdefault(guest.owner, Group())] if guest.owner else []
        joined += [self._taking(port) for port in guest.ports]
        joined += [self._held(ANTI, 0, term) for term in guest.anti]
        joined += [self._held(REPULSED, weight, term) for weight, term in guest.repulsed]
        labels = dict(guest.labels)
        selecting = (*self._in.get(guest.namespace, ()), *self._anywhere)
        joined += [one.group for one in selecting if self._is_member(guest, labels, one)]
        if guest not in self._where:
            self._where[guest] = {}
            self._of_namespace.setdefault(guest.namespace, {})[guest] = None
            self._idle += 1
        found = self._joined[guest] = tuple(joined)
        return found

    def _taking(self, port: HostPort) -> Group:
        return self.ports.setdefault((port.port, port.protocol), {}).setdefault(port, Group())

    def _held(self, kind: str, weight: int, term: PodTerm) -> Group:
        return self.holders.setdefault((kind, weight, term), Group())

    def _rebuild(self) -> None:
        """Count everything anew, and forget who is not there any more."""
        where, self._where = self._where, {}
        self._joined.clear()
        self._of_namespace.clear()
        self._met.clear()
        for groups in (self.holders, self.owners):
            for group in groups.values():
                group.clear()
        for of_port in self.ports.values():
            for group in of_port.values():
                group.clear()
        for one in self._selecting.values():
            one.group.clear()
        for guest, at in where.items():
            if at:
                joined = self._admit(guest)
                self._where[guest] = at
                for row, count in at.items():
                    for group in joined:
                        group.add(row, count)
        self._idle = 0
        self.owners = {uid: group for uid, group in self.owners.items() if group.at}
        self.holders = {key: group for key, group in self.holders.items() if group.at}
        self.ports = {
            key: left for key, of_port in self.ports.items() if (left := {p: g for p, g in of_port.items() if g.at})
        }
        self._met.clear()
