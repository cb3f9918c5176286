"""Pages against the code: every command with every option, every metric."""

from __future__ import annotations

import re
from pathlib import Path

from kyu.cli import reference
from kyu.controllers.metrics import Metrics
from kyu.engine.options import Options
from kyu.engine.state import State
from tests.servers import serving

DOCS = Path(__file__).parent.parent / "docs"


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (DOCS / "commands.md").read_text() == reference.page(), "run `make update`"


async def test_every_metric_is_on_its_page(tmp_path: Path) -> None:
    state = State(Options())
    async with serving(tmp_path) as (api, _):
        Metrics(api.metrics.registry, lambda: state)
        families = list(api.metrics.registry.collect())
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(exported)
