"""The what-ifs of the engine: the scheduler runs on the changed state, and all of it is undone."""
