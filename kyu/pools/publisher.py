"""
The publisher of a pool: announces its capacity on NATS periodically, and whether it runs pods.

Messages have the fields of existing publishers. A sequence number, a time and an optional signature let a listener
reject replays and forgeries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kyu import log
from kyu.api import pool_messages
from kyu.api.meta import Json
from kyu.bus import signing
from kyu.bus.connector import Bus, Unanswered
from kyu.pools.offers import NoOffer, Offer


@dataclass(frozen=True, slots=True)
class Publication:
    """The content of announcements besides the offer. Without a ``signer`` they are not signed."""

    subject: str
    pool: str
    period_seconds: float
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    runs: bool = False
    signer: signing.Signer | None = None


async def publish(connection: Bus, publication: Publication, find_offer: Callable[[], Offer]) -> None:
    """Announce until cancelled. While the capacity is unknown nothing is announced."""
    while True:
        await connection.connected()
        try:
            await publish_once(connection, publication, await asyncio.to_thread(find_offer))
        except NoOffer as error:
            log.error("nothing to announce", pool=publication.pool, error=error)
        except Unanswered as error:
            log.warning("not announced", pool=publication.pool, error=error)
        await asyncio.sleep(publication.period_seconds)


async def publish_once(connection: Bus, publication: Publication, offer: Offer) -> None:
    body = message(publication, offer, time.time())
    await connection.publish(f"{publication.subject}.{publication.pool}", msgspec.json.encode(body))


def message(publication: Publication, offer: Offer, now: float) -> Json:
    body: Json = {
        "quotas": offer.quotas,
        "labels": list(publication.labels),
        "taints": list(publication.taints),
        "schema": 2,
        "pool": publication.pool,
        # Grows over restarts, as the clock does.
        "seq": int(now * 1000),
        "ts": now,
        "period": publication.period_seconds,
        "free": offer.free,
        "runs": publication.runs,
    }
    if publication.signer is not None:
        body["signature"] = publication.signer.sign(pool_messages.signed_part(body, publication.pool))
    return body
