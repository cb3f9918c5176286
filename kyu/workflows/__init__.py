"""
Scheduler plugins: what a workflow engine must write on a job so that Kueue or YuniKorn schedules it as meant.

A library first. ``plugin.py`` has the interface and ``render``, ``queueconfig.py`` the settings; ``kueue.py`` and
``yunikorn.py`` are the two plugins that Kyu brings, others come by entry point. Nothing here needs the rest of Kyu
beyond its objects and its job kinds.
"""
