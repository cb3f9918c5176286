"""
The executor `kyu` of Snakemake: each job of a workflow is queued by Kyu or Kueue.

    snakemake --executor kyu --jobs 100 --kyu-queue-name research

Snakemake finds executors by the name of this package. It comes with Kyu, and only Snakemake imports it. Importing it
needs no server.
"""

# Snakemake reads the types of the fields: they must be Optional[...], and no texts.
# ruff: noqa: UP045

from dataclasses import dataclass, field
from typing import Optional

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from snakemake_executor_plugin_kyu.executor import KyuExecutor as Executor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


def setting(text: str) -> dict[str, object]:
    return {"help": text, "env_var": False, "required": False}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """The options `--kyu-…` of Snakemake. The names are those of the kueue executor, where it has them."""

    queue_name: Optional[str] = field(
        default=None, metadata=setting("LocalQueue (default: `default`, or the only one of the namespace)")
    )
    namespace: Optional[str] = field(default=None, metadata=setting("namespace (default: that of the kubeconfig)"))
    container: Optional[str] = field(default=None, metadata=setting("container image for the jobs, on a cluster"))
    working_dir: Optional[str] = field(default=None, metadata=setting("folder of the jobs in the container"))
    mounts: Optional[str] = field(
        default=None,
        metadata=setting("volumes on a cluster: PATH=CLAIM of a PersistentVolumeClaim, separated by commas"),
    )
    nodes: Optional[int] = field(
        default=1, metadata=setting("pods of a job with kueue_operator=flux-operator (default: 1)")
    )
    flux_container: Optional[str] = field(default=None, metadata=setting("image of the Flux view of a MiniCluster"))
    priority: Optional[str] = field(default=None, metadata=setting("WorkloadPriorityClass of the jobs"))
    retries: Optional[int] = field(default=0, metadata=setting("retries of a failed pod, besides those of Snakemake"))


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    # The values of variables belong in a Secret, and not in a command line.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=True,
    init_seconds_before_status_checks=0,
)
