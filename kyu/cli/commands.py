"""
The table of commands. START HERE to find what a command does.

A command is a module with two functions, ``arguments(parser)`` and ``run(args) -> exit code``. Only the module of the
command that is called gets imported, so that every command starts fast and none pays for another's libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["start", "batch", "admin", "Kubernetes", "plugins", "development"]


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    module: str
    group: Group
    help: str


COMMANDS = (
    Command("demo", "kyu.cli.demo", "start", "two teams share this machine for half a minute"),
    Command("up", "kyu.cli.up", "start", "start the control plane on this machine"),
    Command("down", "kyu.cli.down", "start", "stop it"),
    Command("status", "kyu.cli.status", "start", "whether it runs, and where"),
    Command("completion", "kyu.cli.completion", "start", "print the completion script of a shell"),
    Command("submit", "kyu.cli.submit", "batch", "queue a command"),
    Command("jobs", "kyu.cli.jobs", "batch", "what runs, what waits and why"),
    Command("why", "kyu.cli.why", "batch", "why a job waits, who has what it lacks, and what would help"),
    Command("queues", "kyu.cli.queues", "batch", "the queues that you can submit to, and what of them is used"),
    Command("logs", "kyu.cli.logs", "batch", "print what a job wrote"),
    Command("wait", "kyu.cli.wait", "batch", "wait for a job, and end with its exit code"),
    Command("cancel", "kyu.cli.cancel", "batch", "cancel jobs"),
    Command("top", "kyu.cli.top", "batch", "cohorts, quotas, who runs and who waits; live"),
    Command("controller", "kyu.cli.controller", "admin", "run the controllers on a Kubernetes cluster"),
    Command("ctl", "kyu.cli.ctl", "admin", "create, list, stop, resume and delete queues, as kueuectl does"),
    Command("decide", "kyu.cli.decide", "admin", "what the engine would decide on these manifests, without a cluster"),
    Command("pool", "kyu.cli.pool", "admin", "announce a pool of resources to a MasterQueue, and list the pools"),
    Command("user", "kyu.cli.user", "admin", "users of a local server: their tokens and rights"),
    Command("backup", "kyu.cli.backup", "admin", "copy the database of a running local server"),
    Command("manifests", "kyu.cli.manifests", "admin", "print or write the CRDs and other generated files"),
    Command("get", "kyu.cli.get", "Kubernetes", "list objects"),
    Command("describe", "kyu.cli.describe", "Kubernetes", "show an object and the events about it"),
    Command("apply", "kyu.cli.apply", "Kubernetes", "create or change objects from manifests"),
    Command("delete", "kyu.cli.delete", "Kubernetes", "delete objects"),
    Command("plugin", "kyu.cli.plugin", "plugins", "label a workflow's jobs for Kueue or YuniKorn"),
    Command("bench", "kyu.cli.bench", "development", "measure the engine, the server or the whole, against a rival"),
)
