"""
Short forms of Kueue's messages for narrow tables: the numbers first.

    insufficient unused quota for cpu in flavor default, 4 more needed   ->   needs 4 more cpu (default)
"""

from __future__ import annotations

import re

from kyu.api import quantity

UNUSED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
MAXIMUM = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor \S+, previously considered podsets requests "
    r"\((?P<before>[^)]*)\) \+ current podset request \((?P<wanted>[^)]*)\) > maximum capacity \((?P<most>[^)]*)\)"
)
NOT_COVERED = re.compile(r"resource (\S+) unavailable in ClusterQueue")


def shorten(message: str) -> str:
    """Return the message with its known parts replaced by short ones."""
    message = UNUSED.sub(r"needs \3 more \1 (\2)", message)
    message = MAXIMUM.sub(describe_maximum, message)
    return NOT_COVERED.sub(r"the queue has no \1", message)


def describe_maximum(match: re.Match[str]) -> str:
    resource = match["resource"]
    total = quantity.amount(resource, match["before"]) + quantity.amount(resource, match["wanted"])
    return f"wants {quantity.render(resource, total)} {resource}, {match['most']} is the most"
