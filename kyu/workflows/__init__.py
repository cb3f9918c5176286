"""
Scheduler plugins: the labels and fields that a workflow engine writes on a job for Kueue or YuniKorn.

``plugin.py`` has the interface and ``render``, ``queueconfig.py`` the settings. ``kueue.py`` and ``yunikorn.py`` are
built in; other plugins come by entry point. The package uses the objects and job kinds of Kyu only.
"""
