"""
Both ends of a pool: the site that announces what it has and runs pods, and the control plane that sends them there.

Far end: ``offers.py`` (what there is), ``publisher.py`` (says so), ``runner.py`` (runs pods). Near end: ``pods.py``.
"""
