"""Which form of launching does this node use?"""

from llmgw.agent.launch.launcher import Launcher, Owner
from llmgw.agent.launch.session import SessionLauncher
from llmgw.agent.launch.systemd import SystemdLauncher, running
from llmgw.config.agent import Launcher as Setting


def launcher(setting: Setting, owner: Owner, boot: str) -> Launcher:
    """Return the launcher that agent.yaml asks for; `auto` is systemd where it runs and we are root."""
    if setting is Setting.SYSTEMD or (setting is Setting.AUTO and running()):
        return SystemdLauncher(owner)
    return SessionLauncher(owner, boot)
