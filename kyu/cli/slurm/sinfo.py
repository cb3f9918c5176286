"""sinfo: list queues and nodes."""

from __future__ import annotations

from kyu.api.core import Node
from kyu.api.kueue import LocalQueue
from kyu.api.meta import Json
from kyu.cli import connection, output
from kyu.cli.batch import queues
from kyu.cli.connection import ServerConnection
from kyu.cli.slurm import words
from kyu.kube.errors import Forbidden


def run(given: list[str]) -> int:
    parser = words.SlurmParser("sinfo", "List queues and nodes.")
    parser.add_argument("-p", "--partition", default="", help="these queues")
    parser.add_argument("-h", "--noheader", action="store_true", help="no header")
    args = parser.parse_args(given)
    server = connection.connect(args)
    wanted = words.listed(args.partition)
    for name in wanted:
        server.check_queue(name, server.namespace)
    nodes = node_cells(server)
    rows = [
        [queue["metadata"]["name"], available(queue), "infinite", *nodes]
        for queue in server.listed(LocalQueue.KIND, server.namespace)
        if not wanted or queue["metadata"]["name"] in wanted
    ]
    lines = output.table(["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"], rows).splitlines()
    print("\n".join(lines[1:] if args.noheader else lines))
    return 0


def available(queue: Json) -> str:
    return "up" if queues.state(queue.get("status") or {}) == "active" else "down"


def node_cells(server: ServerConnection) -> list[object]:
    """Return the number, state and names of the nodes, or nothing if the user may not list them."""
    try:
        found = server.client.list(Node.KIND)
    except Forbidden:
        return ["", "", ""]
    names = [str(node["metadata"]["name"]) for node in found if is_ready(node)]
    return [len(names), "up" if names else "down", output.short_list(names)]


def is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
