"""The cluster's PodDisruptionBudgets, read once, for commands that only look."""

from __future__ import annotations

import msgspec

from fleet.budget import DisruptionBudget
from fleet.clock import SystemClock
from fleet.errors import ApiError, BerthmasterError
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Connection
from fleet.kube.decode_budget import BudgetObject, budget_from


class _List(msgspec.Struct):
    items: list[BudgetObject] = msgspec.field(default_factory=list)


async def disruption_budgets(connection: Connection) -> tuple[DisruptionBudget, ...]:
    """Return all budgets.

    Raises:
        BerthmasterError: They cannot be read; then nobody can tell which pods may go.
    """
    async with Client(connection, SystemClock(), user_agent="berthmaster") as client:
        try:
            body = await client.get(paths.BUDGETS)
        except ApiError as error:
            raise BerthmasterError(f"cannot read the disruption budgets: {error}") from error
    return tuple(map(budget_from, msgspec.json.decode(body, type=_List).items))
