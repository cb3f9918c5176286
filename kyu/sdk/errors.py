"""The errors of futures. An exception of the function itself comes back as it is, with its traceback as the cause."""

from __future__ import annotations


class JobFailed(Exception):
    """A job ended without a result: it was killed, could not start, or its command failed."""

    def __init__(self, job: str, why: str, exit_code: int | None = None, output: str = "") -> None:
        last = "\n".join(output.splitlines()[-5:])
        super().__init__(f"{job}: {why}" + (f"\n{last}" if last else ""))
        self.job = job
        self.why = why
        self.exit_code = exit_code
        self.output = output


class RemoteError(Exception):
    """An exception of the function that cannot be rebuilt here. The message begins with the name of its class."""


class RemoteTraceback(Exception):
    """The cause of an exception that comes from a job: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class NotCarried(Exception):
    """A function, argument or result that cannot travel: too large, or not picklable. The message names the remedy."""
