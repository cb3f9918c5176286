"""
The Python SDK: functions and commands as jobs. Users write ``import kyu``, which loads the modules here when needed.

Start with functions.py (what users call), then job.py (a submitted job), watcher.py (how futures learn of the end), and
exchange.py (how functions and results travel).
"""
