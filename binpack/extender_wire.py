"""kube-scheduler's extender protocol as JSON: what comes in, what goes out.

Field names and rules: kubernetes/kube-scheduler `extender/v1/types.go` (no JSON tags, hence capitalised names; lists in
answers are never null, because the scheduler reads null as "no node fits" here and as "not given" there).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fleet.errors import DecodeError
from fleet.kube.objects import PodObject

_LONGEST_REASON = 300


class NotARequest(DecodeError):
    """The body is not a JSON object at all: nobody speaks the protocol at the other end."""


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _NodeList(msgspec.Struct):
    items: list[dict[str, object]] | None = None


class _Args(msgspec.Struct, rename="pascal"):
    pod: PodObject | None = None
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    uid: str = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, rename="pascal"):
    pods: list[_MetaPod] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _Victims(msgspec.Struct, rename="pascal"):
    pods: list[_Named] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _PreemptionArgs(msgspec.Struct, rename="pascal"):
    pod: PodObject | None = None
    node_name_to_victims: dict[str, _Victims] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None = None


class _FilterResult(msgspec.Struct, rename="pascal"):
    nodes: dict[str, object] | None
    node_names: Sequence[str]
    failed_nodes: Mapping[str, str]
    failed_and_unresolvable_nodes: Mapping[str, str]
    error: str


class _HostPriority(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


class _PreemptionResult(msgspec.Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, _MetaVictims]


_encode = msgspec.json.encode
_decode_args = msgspec.json.Decoder(_Args).decode
_decode_preemption = msgspec.json.Decoder(_PreemptionArgs).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Arguments:
    """ExtenderArgs: a pod, and the nodes to judge, as names or as whole objects.

    Attributes:
        pod: As the scheduler sees it, which may be newer than what was watched.
        names: Nodes in the order given; a node object without a name is called "".
    """

    __slots__ = ("_objects", "names", "pod")

    def __init__(self, pod: PodObject, names: list[str], objects: dict[str, dict[str, object]] | None) -> None:
        self._objects = objects
        self.pod = pod
        self.names = names

    def answer(self, passed: Sequence[str], failed: Mapping[str, str]) -> bytes:
        """Return the answer that passes some of the nodes, in the form in which they came."""
        nodes: dict[str, object] | None = None
        if self._objects is not None:
            nodes = {"metadata": {}, "items": [self._objects[name] for name in passed]}
        return _encode(_FilterResult(nodes, passed, failed, {}, ""))


def read_arguments(body: bytes) -> Arguments:
    """Return the arguments of filter or prioritize.

    Raises:
        NotARequest: The body is not a JSON object.
        DecodeError: It is one, but not of this protocol, or names no pod or no nodes.
    """
    try:
        args = _decode_args(body)
        if args.pod is None:
            raise DecodeError("Pod is missing")
        if args.node_names is not None:
            return Arguments(args.pod, args.node_names, None)
        if args.nodes is not None:
            objects = {_name(node): node for node in args.nodes.items or ()}
            return Arguments(args.pod, list(objects), objects)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _why(body, error) from error
    raise DecodeError("Nodes and NodeNames are both null: there is nothing to choose from")


def error_answer(message: str) -> bytes:
    """Return a Filter answer that fails this one scheduling attempt; the scheduler retries it with back-off."""
    return _encode(_FilterResult(None, (), {}, {}, _short(message)))


def priorities_answer(scores: Iterable[tuple[str, int]]) -> bytes:
    """Return the bare array of HostPriority."""
    return _encode([_HostPriority(name, score) for name, score in scores])


class PreemptionArguments:
    """ExtenderPreemptionArgs: the pod that needs room, and whom the scheduler would evict where."""

    __slots__ = ("_args", "pod")

    def __init__(self, args: _PreemptionArgs, pod: PodObject) -> None:
        self._args = args
        self.pod = pod

    def same(self) -> bytes:
        """Return the answer that agrees to every node and its victims; an empty list of victims stays one."""
        victims: dict[str, _MetaVictims] = {}
        for node, whole in (self._args.node_name_to_victims or {}).items():
            pods = [_MetaPod(pod.metadata.uid) for pod in whole.pods or ()]
            victims[node] = _MetaVictims(pods, whole.violations)
        for node, meta in (self._args.node_name_to_meta_victims or {}).items():
            victims[node] = _MetaVictims(meta.pods or [], meta.violations)
        return _encode(_PreemptionResult(victims))


def read_preemption(body: bytes) -> PreemptionArguments:
    """Return the arguments of preempt.

    Raises:
        NotARequest: The body is not a JSON object.
        DecodeError: It is one, but not of this protocol, or without a pod.
    """
    try:
        args = _decode_preemption(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _why(body, error) from error
    if args.pod is None:
        raise DecodeError("Pod is missing")
    return PreemptionArguments(args, args.pod)


def no_preemption_answer() -> bytes:
    """Return the answer that refuses every node."""
    return _encode(_PreemptionResult({}))


def _name(node: dict[str, object]) -> str:
    meta = node.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""


def _why(body: bytes, error: Exception) -> DecodeError:
    try:
        _decode_object(body)
    except (msgspec.MsgspecError, RecursionError):
        return NotARequest(_short(f"not a JSON object: {error}"))
    return DecodeError(_short(str(error)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"
