"""
The table of commands. START HERE to find the module of a command.

A command is a module with two functions, ``arguments(parser)`` and ``run(args) -> exit code``. Only the module of the
command that is called is imported, so no command waits for the libraries of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["start", "batch", "admin", "Kubernetes", "plugins", "development"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, module, group in the overview, and one line of help."""

    name: str
    module: str
    group: Group
    help: str


COMMANDS = (
    Command("demo", "kyu.cli.local.demo", "start", "watch two teams share this machine for a minute"),
    Command("up", "kyu.cli.local.up", "start", "start the control plane on this machine"),
    Command("down", "kyu.cli.local.down", "start", "stop the control plane on this machine"),
    Command("status", "kyu.cli.local.status", "start", "show whether the control plane runs, and its address"),
    Command("service", "kyu.cli.local.service", "start", "run Kyu as a service of this machine, for all its accounts"),
    Command("login", "kyu.cli.local.login", "start", "write a kubeconfig for the shared server of this machine"),
    Command("completion", "kyu.cli.completion", "start", "print the completion script of a shell"),
    Command("submit", "kyu.cli.batch.submit", "batch", "queue a command"),
    Command("jobs", "kyu.cli.batch.jobs", "batch", "list running and waiting jobs, with the reason why they wait"),
    Command(
        "why", "kyu.cli.batch.why", "batch", "explain why a job waits, which jobs hold the quota, and what would help"
    ),
    Command("queues", "kyu.cli.batch.queues", "batch", "list the queues that you can submit to, and their usage"),
    Command("logs", "kyu.cli.batch.logs", "batch", "print the output of a job"),
    Command("wait", "kyu.cli.batch.wait", "batch", "wait for a job and return its exit code"),
    Command("tasks", "kyu.cli.batch.tasks", "batch", "show the tasks of an array by their state"),
    Command("retry", "kyu.cli.batch.retry", "batch", "submit a job again, or the failed tasks of an array"),
    Command("run", "kyu.cli.batch.interactive.run", "batch", "queue a command, stay with it, return its exit code"),
    Command("attach", "kyu.cli.batch.interactive.attach", "batch", "connect this terminal with a job that runs"),
    Command("exec", "kyu.cli.batch.interactive.exec", "batch", "run a command in a pod of a job that runs"),
    Command("history", "kyu.cli.accounts.history", "batch", "list jobs of the past, with what they used"),
    Command("usage", "kyu.cli.accounts.usage", "batch", "sum up what teams, users or queues have used"),
    Command("slurm", "kyu.cli.slurm.command", "batch", "install sbatch, srun, squeue and other commands of Slurm"),
    Command("cancel", "kyu.cli.batch.cancel", "batch", "cancel jobs"),
    Command("workflow", "kyu.cli.workflows.workflow", "batch", "run steps that wait for each other, each in a queue"),
    Command("top", "kyu.cli.batch.top", "batch", "watch cohorts, quotas and jobs live"),
    Command("open", "kyu.cli.web.open", "batch", "show queues and jobs in the browser"),
    Command("controller", "kyu.cli.admin.controller", "admin", "run the controllers on a Kubernetes cluster"),
    Command("shadow", "kyu.cli.admin.shadow", "admin", "show where Kyu would decide otherwise than an installed Kueue"),
    Command("ctl", "kyu.cli.admin.ctl", "admin", "create, list, stop, resume and delete queues, like kueuectl"),
    Command("decide", "kyu.cli.admin.decide", "admin", "show the decisions on manifests without applying them"),
    Command("simulate", "kyu.cli.admin.simulate", "admin", "run a load in virtual time: waits, shares, preemptions"),
    Command("doctor", "kyu.cli.admin.doctor", "admin", "find faults of queues, jobs and settings, in files or live"),
    Command("pool", "kyu.cli.admin.pool", "admin", "announce a pool of resources to a MasterQueue, or list the pools"),
    Command("tenant", "kyu.cli.admin.tenant", "admin", "make queues, namespaces and rights from a file of Tenants"),
    Command("team", "kyu.cli.admin.team", "admin", "give groups of this machine's accounts a namespace and a queue"),
    Command("web", "kyu.cli.web.serve", "admin", "serve the page of queues and jobs to several people"),
    Command("cluster", "kyu.cli.admin.cluster", "admin", "report the capacity of a cluster to a hub"),
    Command("clusters", "kyu.cli.admin.clusters", "admin", "list worker clusters, their capacity and their jobs"),
    Command("user", "kyu.cli.local.user", "admin", "manage the users of a local server"),
    Command("backup", "kyu.cli.local.backup", "admin", "copy the database of a local server while it runs"),
    Command("restore", "kyu.cli.local.restore", "admin", "put a backup in place, or save what is readable"),
    Command("check", "kyu.cli.local.check", "admin", "check the data folder of a local server for damage"),
    Command("manifests", "kyu.cli.admin.manifests", "admin", "print or write the CRDs and other generated manifests"),
    Command("get", "kyu.cli.kubernetes.get", "Kubernetes", "list objects"),
    Command("describe", "kyu.cli.kubernetes.describe", "Kubernetes", "show an object and its events"),
    Command("apply", "kyu.cli.kubernetes.apply", "Kubernetes", "create or change objects from manifests"),
    Command("delete", "kyu.cli.kubernetes.delete", "Kubernetes", "delete objects"),
    Command("plugin", "kyu.cli.admin.plugin", "plugins", "label a workflow's jobs for Kueue or YuniKorn"),
    Command("bench", "kyu.cli.admin.bench", "development", "measure the engine, the server or the whole stack"),
)
