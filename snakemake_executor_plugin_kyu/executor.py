"""The executor: it submits the jobs of a workflow through the Python SDK, and reports what becomes of their futures."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

import kyu
from snakemake_executor_plugin_kyu import requests

LONGEST_RULE = 30


class KyuExecutor(RemoteExecutor):
    """An executor whose jobs are Jobs in a queue, or MiniClusters."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        try:
            self._submitter = kyu.Submitter(namespace=settings.namespace or "")
        except kyu.NoServer as error:
            raise WorkflowError(str(error)) from None
        self._settings = settings

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job of the workflow, and let Snakemake know its name."""
        try:
            future = self._submit(job, self.format_job_exec(job))
        except (ValueError, kyu.ServerLost) as error:
            raise WorkflowError(f"rule {job.name}: {error}") from None
        log = job.logfile_suggestion(os.path.join(".snakemake", "kyu_logs"))
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=future.job, aux={"future": future, "log": log}))

    def _submit(self, job: JobExecutorInterface, command: str) -> kyu.Future[str]:
        options = requests.job_options(job.resources, self._settings, job.threads)
        name = job_name(job)
        if "image" not in options:
            options.setdefault("cwd", os.getcwd())
        if requests.operator(job.resources) == requests.FLUX:
            if self.envvars():
                raise requests.BadResource(f"kueue_operator={requests.FLUX}: envvars cannot be passed to a MiniCluster")
            words = f"/bin/bash -c {shlex.quote(command)}"
            return self._submitter.create(requests.mini_cluster(name, words, options, job.resources, self._settings))
        return self._submitter.run(["/bin/bash", "-c", command], name=name, secrets=self.envvars(), **options)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others, whether they wait or run."""
        # A look at a future is no request to the server.
        self.next_seconds_between_status_checks = 1
        for info in active_jobs:
            future: kyu.Future[str] = (info.aux or {})["future"]
            if future.done():
                self._report(info, future, (info.aux or {})["log"])
            else:
                yield info

    def _report(self, info: SubmittedJobInfo, future: kyu.Future[str], log: str) -> None:
        try:
            write(log, future.result())
        except CancelledError:
            self.report_job_error(info, msg=f"Job {future.job} was deleted. ")
        except Exception as error:
            # The failed Job stays, for `kyu why` and `kyu logs`.
            write(log, getattr(error, "output", "") or str(error))
            self.report_job_error(info, msg=f"Job {future.job} failed: {error} ", aux_logs=[log])
        else:
            # A workflow may have thousands of jobs. The server keeps their output.
            future.delete()
            self.report_job_success(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Delete the jobs of a workflow that was interrupted."""
        for info in active_jobs:
            future: kyu.Future[Any] = (info.aux or {})["future"]
            future.cancel()


def job_name(job: JobExecutorInterface) -> str:
    """Return a name that no other workflow has: that of the rule, its number, and random digits."""
    rule = re.sub(r"[^a-z0-9]+", "-", str(job.name).lower()).strip("-")[:LONGEST_RULE]
    return f"snakejob-{rule or 'group'}-{job.jobid}-{secrets.token_hex(4)}"


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
