"""
Pools that several MasterQueues select: whether they promise more of one, together, than it has.

Sharing a pool is fine where each MasterQueue takes a part of it (`nominalQuota`). Where the parts are more than the
whole, workloads are admitted that have no room. Then nothing is taken back, but the status of all of them reports it.

The others are known by their statuses, so this sees what they saw last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from kyu.api import quantity
from kyu.api.actions import View
from kyu.api.pools import MasterQueue, MasterQueueFlavor
from kyu.plans.pools.states import Member

# The server, the subject and the name of a pool. All three together identify it.
Voice = tuple[str, str, str]


def overcommitments(view: View, queue: MasterQueue, members: Iterable[Member]) -> Iterator[str]:
    """Return, for each pool that is promised beyond its size, the amount and the other MasterQueues."""
    others = [other for other in view.list(MasterQueue) if other.metadata.name != queue.metadata.name]
    if not others:
        return
    promised = promises(others)
    for member in members:
        elsewhere = promised.get(voice(member.group, member.pool), ()) if member.state == "Live" else ()
        excess = list(find_excess(member, [effective for _, effective in elsewhere]))
        if excess:
            names = ", ".join(sorted({name for name, _ in elsewhere}))
            yield f"{member.pool} ({', '.join(excess)}; also in {names})"


def promises(queues: Iterable[MasterQueue]) -> dict[Voice, list[tuple[str, dict[str, str]]]]:
    """Return the amounts that MasterQueues count of each live pool, with their names."""
    found: dict[Voice, list[tuple[str, dict[str, str]]]] = {}
    for queue in queues:
        groups = {group.name: group for group in queue.spec.flavors}
        for pool in queue.status.pools:
            if pool.state == "Live" and pool.flavor in groups:
                heard = voice(groups[pool.flavor], pool.name)
                found.setdefault(heard, []).append((queue.metadata.name, pool.effective))
    return found


def find_excess(member: Member, elsewhere: Sequence[dict[str, str]]) -> Iterator[str]:
    for resource, text in member.published.items():
        has = quantity.amount(resource, text)
        parts = [quantity.amount(resource, part.get(resource, "0")) for part in (member.effective, *elsewhere)]
        if elsewhere and sum(parts) > has:
            yield f"{quantity.render(resource, sum(parts))} of {quantity.render(resource, has)} {resource}"


def voice(group: MasterQueueFlavor, pool: str) -> Voice:
    """Return the address of a server without user and password. If only a Secret names it, the Secret stands for it."""
    nats, clusters = group.nats_flavor, group.cluster_flavor
    if clusters is not None:
        return ("", ",".join(f"{name}={value}" for name, value in sorted(clusters.node_labels.items())), pool)
    if nats is None:
        return ("", "", pool)
    secret = nats.credentials_secret
    server = urlsplit(nats.nats_connector).netloc.rpartition("@")[2].lower()
    if not server and secret is not None:
        server = f"{secret.namespace}/{secret.name}"
    return (server, nats.nats_subject, pool)
