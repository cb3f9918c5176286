"""
Print, write or verify the generated manifests: CustomResourceDefinitions, roles, and a Deployment of the controllers.

    kyu manifests                      print all as YAML, for kubectl apply --server-side -f -
    kyu manifests --crds-only          print the CustomResourceDefinitions
    kyu manifests --image IMAGE        include the Deployment of `kyu controller`, its roles, webhooks and policies
    kyu manifests --image IMAGE --no-policies    the same for clusters before Kubernetes 1.36
    kyu manifests --image IMAGE --shadow         only a shadow beside an installed Kueue: it reads and compares
    kyu manifests --write config       write them to config/, with a Helm chart, alerts and a dashboard
    kyu manifests --verify config      return 1 if a file is missing, stale or not generated
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu.cli.main import BadInput, Failed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--crds-only", action="store_true", help="CustomResourceDefinitions only")
    parser.add_argument("--image", metavar="IMAGE", help="include a Deployment of this image, which must contain kyu")
    parser.add_argument("--no-policies", action="store_true", help="leave MutatingAdmissionPolicies out")
    parser.add_argument("--shadow", action="store_true", help="only `kyu controller --shadow`, with rights to read")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", type=Path, metavar="DIR", help="write the files to this folder")
    action.add_argument("--verify", type=Path, metavar="DIR", help="compare with the files of this folder")


def run(args: argparse.Namespace) -> int:
    if args.shadow:
        print(shadow(args), end="")
        return 0
    files = generated(crds_only=args.crds_only, image=args.image, policies=not args.no_policies)
    if args.write:
        write(args.write, {**files, **other_files()})
    elif args.verify:
        verify(args.verify, {**files, **other_files()})
    else:
        print("".join(files.values()), end="")
    return 0


def shadow(args: argparse.Namespace) -> str:
    from kyu.api import documents
    from kyu.install.shadow import shadow_objects

    if not args.image:
        raise BadInput("--shadow: add --image IMAGE, which must contain kyu")
    if args.crds_only or args.write or args.verify:
        raise BadInput("--shadow prints objects only: leave --crds-only, --write and --verify out")
    return documents.render(shadow_objects(args.image))


def generated(*, crds_only: bool, image: str | None = None, policies: bool = True) -> dict[str, str]:
    """Return the generated manifests by their paths in the folder."""
    from kyu.api import documents, pools, roles, workflows
    from kyu.api.clusters import capacity
    from kyu.api.definitions import crds

    files = {}
    for definition in (*crds.definitions(), pools.definition(), *capacity.definitions(), workflows.definition()):
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        files[f"crds/{group}_{plural}.yaml"] = documents.render([definition])
    if not crds_only:
        from kyu.install.workflows import policy_objects

        files["rbac/cluster_roles.yaml"] = documents.render(roles.cluster_roles())
        files["workflows/rights.yaml"] = documents.render(policy_objects())
    if image is not None:
        from kyu.install import objects

        files["manager/manager.yaml"] = documents.render(objects.objects(image, policies=policies))
    return files


def other_files() -> dict[str, str]:
    """Return the files of the Helm chart, of Prometheus and Grafana by their paths in the folder."""
    from kyu.api import documents
    from kyu.install import chart, monitoring

    return {
        **{f"chart/{name}": text for name, text in chart.files().items()},
        "monitoring/alerts.yaml": documents.render([monitoring.rules()]).removeprefix("---\n"),
        "monitoring/dashboard.json": monitoring.dashboard(),
    }


def write(directory: Path, files: dict[str, str]) -> None:
    for path in stale(directory, files):
        path.unlink()
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"wrote {len(files)} files to {directory}")


def verify(directory: Path, files: dict[str, str]) -> None:
    faults = [f"{path} is no longer generated" for path in stale(directory, files)]
    for name, text in files.items():
        path = directory / name
        if not path.exists():
            faults.append(f"{path} is missing")
        elif path.read_text() != text:
            faults.append(f"{path} differs")
    if faults:
        raise Failed("\n".join([*faults, f"run: kyu manifests --write {directory}"]))
    print(f"{len(files)} files in {directory} are up to date")


def stale(directory: Path, files: dict[str, str]) -> list[Path]:
    """Return the files in generated folders that are no longer generated."""
    folders = sorted({name.partition("/")[0] for name in files})
    found = (path for folder in folders for path in (directory / folder).glob("*.yaml"))
    return sorted(path for path in found if str(path.relative_to(directory)) not in files)
