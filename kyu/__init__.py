"""Kyu (級): a batch queue that speaks the API of Kueue. Public: the CLI, `kyu.api` and `kyu.workflows`."""

__version__ = "0.1.0"
