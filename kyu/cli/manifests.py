"""
Print, write or verify the files that are generated: CustomResourceDefinitions, roles, and what runs the controllers.

  kyu manifests                      all of them, as YAML, ready for kubectl apply --server-side -f -
  kyu manifests --crds-only          the CustomResourceDefinitions
  kyu manifests --image IMAGE        with a Deployment that runs `kyu controller`, its rights, and a Service for metrics
  kyu manifests --write config       write them to config/crds, config/rbac, config/manager
  kyu manifests --verify config      compare; 1 if a file is missing, stale or not ours
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kyu.cli.main import Failed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--crds-only", action="store_true", help="only the CustomResourceDefinitions")
    parser.add_argument("--image", metavar="IMAGE", help="also a Deployment of this image, which has kyu in it")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", type=Path, metavar="DIR", help="write the files below this directory")
    action.add_argument("--verify", type=Path, metavar="DIR", help="compare with the files below this directory")


def run(args: argparse.Namespace) -> int:
    files = generated(crds_only=args.crds_only, image=args.image)
    if args.write:
        write(args.write, files)
    elif args.verify:
        verify(args.verify, files)
    else:
        print("".join(files.values()), end="")
    return 0


def generated(*, crds_only: bool, image: str | None = None) -> dict[str, str]:
    """What is generated, by its path below the directory."""
    from kyu.api import crds, documents, pools, roles

    files = {}
    for definition in (*crds.definitions(), pools.definition()):
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        files[f"crds/{group}_{plural}.yaml"] = documents.render([definition])
    if not crds_only:
        files["rbac/cluster_roles.yaml"] = documents.render(roles.cluster_roles())
    if image is not None:
        from kyu.controllers import installation

        files["manager/manager.yaml"] = documents.render(installation.objects(image))
    return files


def write(directory: Path, files: dict[str, str]) -> None:
    for path in stale(directory, files):
        path.unlink()
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"wrote {len(files)} files to {directory}")


def verify(directory: Path, files: dict[str, str]) -> None:
    faults = [f"{path} is not generated any more" for path in stale(directory, files)]
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
    """Files in the generated folders that nothing generates."""
    folders = sorted({name.partition("/")[0] for name in files})
    found = (path for folder in folders for path in (directory / folder).glob("*.yaml"))
    return sorted(path for path in found if str(path.relative_to(directory)) not in files)
