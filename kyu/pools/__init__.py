"""
Both ends of a pool: the site that announces its capacity and runs pods, and the control plane that sends pods there.

Site: ``offers.py`` (capacity), ``publisher.py`` (announcements), ``runner.py`` (pods). Control plane: ``pods.py``.
"""
