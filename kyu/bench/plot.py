"""
A plot in the terminal, with the library that only benchmarks need.

Called by: bench/engine.py and other subjects of `kyu bench`.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotext


def bars(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    """One horizontal bar for each name."""
    plotext.clear_figure()
    plotext.simple_bar(names, values, width=90, title=title)
    return str(plotext.uncolorize(plotext.build()))
