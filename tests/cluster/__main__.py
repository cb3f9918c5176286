"""
``python -m tests.cluster``: build the control plane, run the tests that need it, start one for a person, measure it.

Called by: make control-plane, make test-cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster import build, kueue, measure, parts, yunikorn
from tests.cluster.build import BuildFailed, Unavailable, say
from tests.cluster.controlplane import EVERYTHING, ControlPlane
from tests.cluster.upstream import suites

HERE = Path(__file__).parent
TEST_SECONDS = 600
# Tests of the embedded server that need a kubectl. The control plane brings one.
WITH_KUBECTL = (HERE.parent / "e2e" / "test_kubectl.py", HERE.parent / "e2e" / "test_walkthroughs.py")


def main(arguments: list[str]) -> int:
    options, others = parser().parse_known_args(arguments)
    if others and options.command != "test":
        parser().error(f"unrecognized arguments: {' '.join(others)}")
    match options.command:
        case "build":
            return run_build()
        case "test":
            return run_tests(others)
        case "up":
            return run_up(options)
        case "upstream":
            return suites.run(options.suites, options.focus, always_schedules=options.always_schedules)
        case _:
            return measure.main()


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real control plane for the tests.")
    commands = result.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what is not built yet")
    commands.add_parser("test", help="build if needed, then run the tests of this folder; other arguments are pytest's")
    up = commands.add_parser("up", help="start a control plane and keep it until Ctrl-C")
    up.add_argument("--nodes", type=int, default=3, help="how many KWOK nodes (default 3)")
    up.add_argument("--cpu", default="8", help="CPUs of a node (default 8)")
    up.add_argument("--memory", default="32Gi", help="memory of a node (default 32Gi)")
    up.add_argument("--kueue", action="store_true", help="with upstream Kueue")
    up.add_argument("--yunikorn", action="store_true", help="with YuniKorn as a second scheduler")
    up.add_argument("--fsync", action="store_true", help="every write on disk before its answer, to measure beside")
    upstream = commands.add_parser("upstream", help="run Kueue's own integration tests on Kyu")
    upstream.add_argument("suites", nargs="*", help="parts of the paths of suites (default all)")
    upstream.add_argument("-k", dest="focus", default="", help="only the specs whose name matches")
    upstream.add_argument("--always-schedules", action="store_true", help="with Kyu's scheduler in every suite")
    commands.add_parser("measure", help="start-up times, memory and writes per second, as in README.md")
    return result


def run_build() -> int:
    for module in build.missing():
        try:
            build.build(module)
        except (Unavailable, BuildFailed) as error:
            say(str(error))
            return 1
    say(f"the control plane is built: {parts.cache_folder()}")
    return 0


def run_tests(pytest_arguments: list[str]) -> int:
    """0 where Go or its downloads are missing: there is nothing to test with, and no fault of the sources."""
    for module in build.missing():
        try:
            build.build(module)
        except Unavailable as error:
            say(f"tests on a real control plane skipped: {error}")
            if module in (parts.KUBERNETES, parts.KWOK):
                return 0
        except BuildFailed as error:
            say(str(error))
            return 1
    # The project's own options leave this folder out, so they are set aside.
    options = ["-o", "addopts=-q --strict-markers -rsfE --durations=5"]
    # The first test of a file starts control planes, and everything that is waited for has a limit of its own.
    options += ["-o", f"timeout={TEST_SECONDS}", *pytest_arguments]
    if not any(Path(argument.partition("::")[0]).exists() for argument in pytest_arguments):
        options += [str(HERE), *map(str, WITH_KUBECTL)]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:{parts.binary('kubectl').parent}"}
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=HERE.parent.parent, env=environment).returncode


def run_up(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    with ControlPlane.start(*EVERYTHING, fsync=options.fsync) as plane:
        names = [f"node-{number}" for number in range(options.nodes)]
        plane.add_nodes(names, {"cpu": options.cpu, "memory": options.memory})
        if options.kueue:
            kueue.start(plane)
        if options.yunikorn:
            yunikorn.start(plane)
        say(f"Logs are in {plane.layout.folder}. Ctrl-C ends everything and removes it. In another shell:")
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
