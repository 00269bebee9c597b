"""What does each order come to on this node now: which files, and are they there, installed and whole?"""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from llmgw.agent.engines.releases import Releases
from llmgw.agent.engines.shelf import Shelf, Unfit
from llmgw.agent.engines.stock import Stock
from llmgw.core.engines.installing import Plan, Target
from llmgw.core.engines.orders import EngineOrder
from llmgw.core.engines.variants import choose, pick
from llmgw.core.errors import NoBuild
from llmgw.core.inventory import Inventory
from llmgw.core.link import Desired
from llmgw.host import clock
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

FAULT = "the agent met a fault of its own; its log on the node says which"


class Machine(Protocol):
    """What the node is."""

    inventory: Inventory | None


class Planner:
    """Makes plans of orders; what agent.yaml names by hand is not planned for."""

    def __init__(
        self, by_hand: Collection[str], shelf: Shelf, releases: Releases, stock: Stock, machine: Machine
    ) -> None:
        self._by_hand, self._shelf, self._releases = by_hand, shelf, releases
        self._stock, self._machine = stock, machine
        self._heard = dict[tuple[str, str], float]()

    async def plans(self, desired: Desired | None) -> list[Plan]:
        """The plans of all orders, as things are now. Raises OSError."""
        orders = [order for order in desired.engines if order.engine not in self._by_hand] if desired else []
        now = clock.now()
        self._heard = {key: self._heard.get(key, now) for key in map(_key, orders)}
        return [await self._plan(order) for order in orders]

    def needed(self, order: EngineOrder) -> str:
        """The id of the release that the node needs of an order. Raises NoBuild."""
        assert self._machine.inventory is not None  # without it no order is open
        return pick(order, self._machine.inventory)[0].id

    async def _plan(self, order: EngineOrder) -> Plan:
        plan = Plan(order=order, since=self._heard.get(_key(order), 0.0))
        try:
            target = await self._target(order)
        except (NoBuild, Unfit) as error:
            return replace(plan, problem=str(error))
        except OSError:
            raise
        except Exception:  # the supervisor of plans: what cannot be planned for one engine leaves the others alone
            _log.exception("engine %s %s: its plan met a fault of ours", order.engine, order.version)
            return replace(plan, problem=FAULT)
        if target is None:
            return plan
        whole = any(target.is_met_by(seen.made) and not seen.problem for seen in self._stock.seen())
        held = not whole and await aside(self._shelf.has_all, target.files)
        return replace(plan, target=target, whole=whole, held=held)

    async def _target(self, order: EngineOrder) -> Target | None:
        """What the order comes to here; None while its release is not here. Raises NoBuild, Unfit and OSError."""
        inventory = self._machine.inventory
        if not order.releases or inventory is None:
            return None
        id = self.needed(order)
        release = await self._releases.kept(id)
        if release is None:
            return None
        about = (release.engine, release.version, release.kind)
        if about != (order.engine, order.version, order.kind):
            fact = f"its release {id[:12]} is of {release.engine[:40]} {release.version[:40]!r}, {release.kind.value}"
            raise Unfit(f"{order.engine} {order.version}: {fact}; see engines: in server.yaml")
        choice = choose(order, [release], inventory)
        return Target(
            engine=order.engine,
            version=order.version,
            kind=order.kind,
            variant=choice.variant,
            release=id,
            files=choice.files,
            note=choice.note,
        )


def _key(order: EngineOrder) -> tuple[str, str]:
    return order.engine, order.version
