"""
What a control plane is built of, and where the built files are.

A part is one Go main package; a module is one folder below ``go/`` with its own go.mod, because each upstream project
was released with other versions of the same libraries and is only itself with those. The versions are read from the
go.mod files, nowhere repeated.

Called by: build.py (to build), controlplane.py and its neighbours (to find the binaries).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

GO = Path(__file__).parent / "go"
INSTALLATION = "installation.yaml"


@dataclass(frozen=True, slots=True)
class Module:
    """A folder below go/ that pins one upstream project."""

    name: str
    project: str  # the Go module whose version names the release
    linker_flags: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()  # folders of the project that are wanted beside the binaries
    kustomization: str = ""  # the folder that renders to the project's own installation

    @property
    def folder(self) -> Path:
        return GO / self.name

    @property
    def version(self) -> str:
        found = re.search(rf"^\s*(?:require )?{re.escape(self.project)} (v\S+)", self.go_mod(), re.MULTILINE)
        assert found, f"{self.folder / 'go.mod'} does not require {self.project}"
        return found.group(1)

    def go_mod(self) -> str:
        return (self.folder / "go.mod").read_text()

    def sources(self) -> list[Path]:
        return sorted(p for p in self.folder.iterdir() if p.name in ("go.mod", "go.sum") or p.suffix == ".go")


@dataclass(frozen=True, slots=True)
class Part:
    """One binary."""

    name: str
    module: Module
    package: str


def stamp(module: str, version: str) -> tuple[str, ...]:
    """The linker flags by which a Kubernetes binary learns its own version."""
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"-X={module}.{name}={value}" for name, value in values.items())


def kubernetes_module() -> Module:
    version = Module("kubernetes", "k8s.io/kubernetes").version
    flags = stamp("k8s.io/component-base/version", version) + stamp("k8s.io/client-go/pkg/version", version)
    return Module("kubernetes", "k8s.io/kubernetes", flags, manifests=("api/openapi-spec",))


def kueue_module() -> Module:
    version = Module("kueue", "sigs.k8s.io/kueue").version
    # Kueue's visibility server keeps its certificate in /visibility, which only root may write; a relative folder lets
    # each process have its own.
    flags = (
        f"-X=sigs.k8s.io/kueue/pkg/version.GitVersion={version}",
        "-X=sigs.k8s.io/kueue/pkg/visibility.certDir=visibility",
    )
    return Module("kueue", "sigs.k8s.io/kueue", flags, kustomization="config/default")


KUBERNETES = kubernetes_module()
KWOK = Module("kwok", "sigs.k8s.io/kwok")
KUEUE = kueue_module()
YUNIKORN = Module("yunikorn", "github.com/apache/yunikorn-k8shim")
HELM = Module("helm", "helm.sh/helm/v3")
MODULES = (KUBERNETES, KWOK, KUEUE, YUNIKORN, HELM)

PARTS = (
    Part("etcd", KUBERNETES, "go.etcd.io/etcd/server/v3"),
    Part("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    Part("kube-controller-manager", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Part("kube-scheduler", KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    Part("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
    Part("kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
    Part("kueue", KUEUE, "sigs.k8s.io/kueue/cmd/kueue"),
    Part("yunikorn", YUNIKORN, "kyu.invalid/tests/cluster/yunikorn"),
    Part("helm", HELM, "helm.sh/helm/v3/cmd/helm"),
)
PART_BY_NAME = {part.name: part for part in PARTS}


class NotBuilt(Exception):
    """A part is asked for that is not in the cache folder."""


def cache_folder() -> Path:
    """KYU_CONTROL_PLANE, or a folder in the user's cache: shared by all checkouts, kept when one is removed."""
    if chosen := os.environ.get("KYU_CONTROL_PLANE"):
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "kyu" / "control-plane"


def module_folder(module: Module) -> Path:
    """Where the binaries of a module are: a change of a version, a source or a flag is another folder."""
    digest = hashlib.sha256()
    for path in module.sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    parts = [part.package for part in PARTS if part.module == module]
    digest.update(
        repr((parts, module.linker_flags, module.manifests, module.kustomization, platform.machine())).encode()
    )
    return cache_folder() / f"{module.name}-{module.version}-{digest.hexdigest()[:12]}"


def binary(name: str) -> Path:
    path = module_folder(PART_BY_NAME[name].module) / name
    if not path.exists():
        raise NotBuilt(f"{name} is not built: run `make control-plane`")
    return path


def kubectl() -> Path:
    """The machine's own kubectl, so that the tests speak with what people have; else the built one."""
    found = shutil.which("kubectl")
    return Path(found) if found else binary("kubectl")


def installation(module: Module) -> Path:
    """The manifests by which the project is installed in a cluster, rendered when it was built."""
    path = module_folder(module) / INSTALLATION
    if not path.exists():
        raise NotBuilt(f"{module.name} is not built: run `make control-plane`")
    return path
