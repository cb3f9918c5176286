"""
Kueue's own integration tests, with ``kyu controller`` in place of Kueue's controllers.

The sources of Kueue are copied from Go's module cache, changed as ``edits.py`` says, and each suite is built and run as
one program with an etcd and an API server of its own.

Called by: tests/cluster/__main__.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster import build, parts
from tests.cluster.build import say
from tests.cluster.upstream import edits

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SUITES = Path("test/integration")
ENVIRONMENT = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false"}
# Definitions of jobs that the suites install: the folder below dep-crds, the module, and its folder.
DEFINITIONS = (
    ("mpi-operator", "github.com/kubeflow/mpi-operator", "manifests/base"),
    ("training-operator-crds", "github.com/kubeflow/training-operator", "manifests/base/crds"),
    ("kf-trainer-crds", "github.com/kubeflow/trainer/v2", "manifests/base/crds"),
    ("ray-operator-crds", "github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    ("jobset-operator", "sigs.k8s.io/jobset", "config/components/crd/bases"),
    ("cluster-autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd"),
    ("appwrapper-crds", "github.com/project-codeflare/appwrapper", "config/crd/bases"),
    ("leaderworkerset-operator", "sigs.k8s.io/lws", "config/crd/bases"),
    ("clusterprofile", "sigs.k8s.io/cluster-inventory-api", "config/crd/bases"),
    ("spark-operator-crds", "github.com/kubeflow/spark-operator/v2", "config/crd/bases"),
)
# The training operator has another version of this definition than the MPI operator.
OTHERS_DEFINITION = "kubeflow.org_mpijobs.yaml"
OWN_SOURCES = {
    "record.go": "pkg/kyurecord/record.go",
    "scrape.go": "pkg/kyurecord/scrape/scrape.go",
    "process.go": "test/integration/framework/process.go",
}
RESULT = re.compile(r"(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped")


def run(wanted: Sequence[str], focus: str, *, always_schedules: bool) -> int:
    """Run the suites whose path contains one of the texts, or all; return 0 if every spec has passed."""
    folder = parts.cache_folder() / "upstream" / parts.KUEUE.version
    copy = prepare(folder)
    failed = 0
    for suite in suites(copy):
        if not wanted or any(text in suite for text in wanted):
            failed += run_suite(copy, folder, suite, focus, always_schedules=always_schedules)
    return 1 if failed else 0


def suites(copy: Path) -> Iterator[str]:
    for path in sorted((copy / SUITES).rglob("suite_test.go")):
        yield str(path.parent.relative_to(copy / SUITES))


def prepare(folder: Path) -> Path:
    """Return a changed copy of the sources of Kueue, with the definitions that the suites install."""
    copy = folder / "kueue"
    source = build.source_folder(parts.KUEUE)
    shutil.copytree(source, copy, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for name, target in OWN_SOURCES.items():
        (copy / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / "go" / name, copy / target)
    edits.apply_all(copy)
    definitions = copy / "config/components/crd"
    copy_files(definitions / "bases", definitions / "_output")
    for name, module, part in DEFINITIONS:
        copy_files(module_folder(copy, module) / part, copy / "dep-crds" / name, without_others=name != "mpi-operator")
    return copy


def copy_files(source: Path, target: Path, *, without_others: bool = False) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and not (without_others and path.name == OTHERS_DEFINITION):
            shutil.copyfile(path, target / path.name)


def module_folder(copy: Path, module: str) -> Path:
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=copy, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def run_suite(copy: Path, folder: Path, suite: str, focus: str, *, always_schedules: bool) -> int:
    """Build a suite and run it; say how many specs passed, and return how many did not."""
    name = suite.replace("/", "-")
    program, logs, output = folder / f"{name}.test", folder / "logs" / name, folder / f"{name}.txt"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    command = ["nice", "go", "test", "-trimpath", "-vet=off", "-ldflags=-s -w", "-c", f"-o={program}"]
    subprocess.run([*command, f"./{SUITES}/{suite}"], cwd=copy, env=os.environ | ENVIRONMENT, check=True)
    environment = os.environ | {
        "KUBEBUILDER_ASSETS": str(parts.binary("kube-apiserver").parent),
        "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": "180s",
        "KYU_PYTHON": sys.executable,
        "KYU_CONTROLLER": str(HERE / "controller.py"),
        "KYU_LOGS": str(logs),
        "PYTHONPATH": str(ROOT),
        **({"KYU_ALWAYS_SCHEDULES": "1"} if always_schedules else {}),
    }
    options = ["--ginkgo.v", "--ginkgo.no-color", *([f"--ginkgo.focus={focus}"] if focus else [])]
    with output.open("w") as file:
        subprocess.run([program, *options], cwd=copy / SUITES / suite, env=environment, stdout=file, stderr=file)
    text = output.read_text(errors="replace")
    found = RESULT.search(text)
    passed, failed = (int(found[1]), int(found[2])) if found else (0, 1)
    say(f"{suite}: {passed} of {passed + failed} specs passed; {output}, processes in {logs}")
    for line in dict.fromkeys(re.findall(r"^  \[FAIL\] (.*)$", text, re.MULTILINE)):
        say(f"  {line}")
    return failed
