"""
Bars in the terminal: one line per figure.

Called by: ``kyu bench`` after the rows of a subject.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 50


def bars(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    """Return one horizontal bar for each name, the longest as wide as the plot."""
    if not names:
        return title
    longest, most = max(map(len, names)), max(values)
    lines = [title]
    for name, value in zip(names, values, strict=True):
        bar = "█" * round(WIDTH * value / most) if most > 0 else ""
        lines.append(f"{name:>{longest}} │{bar} {value:.2f}")
    return "\n".join(lines)
