"""Where may this file of a release come from, in which order? Near and cheap before far and shared."""

import random
from collections.abc import Callable

from llmgw.agent.transfer.http import MirrorSource, UrlSource
from llmgw.agent.transfer.rpc import ControlSource, HolderSource
from llmgw.agent.transfer.source import Source
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile
from llmgw.wire.channel import Channel

HOLDERS = 3
"""Nodes that are asked for one file, picked anew each time so that not all ask the same."""


def sources(
    order: EngineOrder, release: Release, file: ReleaseFile, *, dial: Callable[[], Channel], tls: TlsFiles
) -> tuple[Source, ...]:
    """The mirror, the control plane where it serves, nodes of the same fabric, the file's own address.

    `dial` makes a channel to a control plane, `tls` is what other nodes are shown.
    """
    found: list[Source] = []
    if order.mirror:
        found.append(MirrorSource(order.mirror, release.engine, release.version, file.name))
    if order.served:
        found.append(ControlSource(dial))
    holders = random.sample(order.holders, min(HOLDERS, len(order.holders)))
    found += [HolderSource(holder, tls) for holder in holders]
    if file.url:
        found.append(UrlSource(file.url))
    return tuple(found)
