"""
A workflow engine in thirty lines: two steps, each labelled for the scheduler before it would be submitted.

    python engine.py            as queueconfig.yaml says: YuniKorn
    python engine.py kueue      the same steps for Kueue

Each object is printed as `kubectl apply -f -` takes it. The engine's own part is one call per step.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from kyu.api import codec, documents
from kyu.workflows import plugin, queueconfig
from kyu.workflows.task import Task

HERE = Path(__file__).parent
STEPS = {"prepare": "spark.yaml", "tune": "ray-job.yaml"}


def main() -> int:
    config = queueconfig.parse((HERE / "queueconfig.yaml").read_text(), "queueconfig.yaml")
    if len(sys.argv) > 1:
        config = dataclasses.replace(config, scheduler=sys.argv[1])
    scheduler = plugin.load(config)
    for step, filename in STEPS.items():
        manifest = codec.read((HERE / filename).read_text(), filename)[0]
        # The same for every retry of the submission; a new attempt would be n0-1.
        task = Task("organization1", f"wf7-{step}-0", project="flytesnacks", user="user1", groups=("research",))
        result = plugin.render(scheduler, task, manifest.object)
        if isinstance(result, plugin.NotRendered):
            print(f"{step}: {result}", file=sys.stderr)
            return 1
        print(documents.render([result.object]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
