"""What installs engines on this node: its parts, put together."""

from llmgw.agent.engines.inspector import Inspector
from llmgw.agent.engines.installer import Installer
from llmgw.agent.engines.parts import RealParts
from llmgw.agent.engines.planner import Planner
from llmgw.agent.engines.releases import Releases
from llmgw.agent.engines.shelf import Shelf
from llmgw.agent.engines.stock import Stock
from llmgw.agent.news import News
from llmgw.agent.node import Node
from llmgw.agent.survey import Survey
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import Inventory


class Installing:
    """The shelf, who looks after what is on it, and who puts more there."""

    def __init__(self, config: AgentConfig, node: Node, survey: Survey, stock: Stock, news: News) -> None:
        def inventory() -> Inventory:
            assert survey.inventory is not None  # engines are looked at once the machine was
            return survey.inventory

        self.shelf = Shelf(config.state)
        releases = Releases(self.shelf, config.control, config.tls)
        parts = RealParts(
            releases.dial,
            config.tls,
            rate=config.download_rate,
            packages=config.install_packages,
            inventory=inventory,
            gpus_free=lambda: not node.ports(),
        )
        self.inspector = Inspector(self.shelf, parts, stock, survey.described, config.check_engines)
        planner = Planner(config.engines, self.shelf, releases, stock, survey)
        self.installer = Installer(planner, self.shelf, parts, releases, stock, self.inspector, node, news)
