"""
The options of `#SBATCH` lines and of `sbatch` in the words of ``kyu submit``.

Options that change nothing here are noted. Options that Kyu cannot honour are refused with their line.
"""

from __future__ import annotations

import re

from kyu.cli.batch.submission import times
from kyu.cli.main import BadInput
from kyu.kinds import job_order

SHORT = {
    "-J": "--job-name", "-p": "--partition", "-c": "--cpus-per-task", "-n": "--ntasks", "-N": "--nodes", "-t": "--time",
    "-o": "--output", "-e": "--error", "-a": "--array", "-G": "--gpus", "-d": "--dependency", "-D": "--chdir",
    "-A": "--account", "-H": "--hold", "-q": "--qos", "-w": "--nodelist", "-x": "--exclude", "-C": "--constraint",
    "-W": "--wait", "-Q": "--quiet", "-v": "--verbose",
}  # fmt: skip
# Slurm's units are powers of 1024, and M without a unit.
MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)|gpu(?::[A-Za-z]\w*)?")
CONDITIONS = {"afterok": "ok", "afterany": "any", "afternotok": "notok"}
FLAGS = frozenset({
    "--requeue", "--no-requeue", "--exclusive", "--parsable", "--verbose", "--quiet", "--hold",
    "--wait", "--pty", "--test-only", "--help", "--version",
})  # fmt: skip
WITHOUT_EFFECT = frozenset({
    "--account", "--comment", "--exclusive", "--mail-type", "--mail-user", "--no-requeue", "--ntasks-per-node",
    "--open-mode", "--parsable", "--quiet", "--requeue", "--verbose", "--hint",
})  # fmt: skip
# The number of the line of an option that was given to the command.
COMMAND_LINE = 0
SAME = {"--output": "--output", "--error": "--error", "--export": "--export", "--chdir": "--chdir"}
NAMED = {"--partition": "--queue", "--qos": "--priority"}


class Translation:
    """The options of a script, in the order of their lines. A later option replaces an earlier one."""

    def __init__(self, script: str) -> None:
        self._script = script
        self.given: dict[str, tuple[int, str]] = {}
        self.notes: list[str] = []

    def add(self, number: int, words: list[str]) -> None:
        """Take the words of a line."""
        left = list(words)
        while left:
            self._take(number, left)

    def add_command_line(self, words: list[str]) -> list[str]:
        """Take the options before the script; return the script and its arguments."""
        left = list(words)
        while left and left[0].startswith("-") and left[0] != "-":
            self._take(COMMAND_LINE, left)
        return left

    def pop(self, name: str) -> str | None:
        """Remove an option and return its value, or None if it was not given."""
        return self.given.pop(name, (COMMAND_LINE, None))[1]

    def _take(self, number: int, left: list[str]) -> None:
        """Take an option, and its value if it has one, from the front of the words."""
        word = left.pop(0)
        name, separator, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            name, separator, value = word[:2], "=", word[2:].removeprefix("=")
        name = SHORT.get(name, name)
        if not name.startswith("--"):
            raise self._refuse(number, f"{word} is not an option that Kyu knows")
        if not separator and name not in FLAGS:
            if not left:
                raise self._refuse(number, f"{name} needs a value")
            value = left.pop(0)
        self.given[name] = (number, value)

    def options(self) -> list[str]:
        """Return the options as words of ``kyu submit``."""
        found: list[str] = []
        for name, (number, value) in self.given.items():
            if name in WITHOUT_EFFECT:
                self.notes.append(f"{self._place(number)}: {name} has no effect")
            else:
                found += self._translate(name, number, value)
        if cores := self._cores():
            found += ["--cpu", str(cores)]
        return found

    def _cores(self) -> int:
        """Return the cores of all tasks; they run in one pod, as in a batch script of Slurm."""
        known = [self._count(name) for name in ("--ntasks", "--cpus-per-task") if name in self.given]
        return 0 if not known else known[0] * (known[1] if len(known) > 1 else 1)

    def _translate(self, name: str, number: int, value: str) -> list[str]:
        match name:
            case "--job-name":
                # Several jobs of Slurm may have one name.
                return ["--generate-name", value]
            case "--time":
                total = times.slurm_seconds(value)
                if total is None:
                    raise self._refuse(number, f"--time {value}: write minutes, H:M:S or D-H:M:S")
                return ["--time", str(total)]
            case "--mem" | "--mem-per-cpu":
                return ["--memory", self._memory(name, number, value)]
            case "--gres" | "--gpus" | "--gpus-per-node" | "--gpus-per-task":
                match_ = GPUS.fullmatch(value)
                if match_ is None:
                    raise self._refuse(number, f"{name}={value}: only GPUs are known, for example gpu:2")
                return ["--gpu", match_[1] or "1"]
            case "--array":
                # A single number is a task for Slurm, and a number of tasks for Kyu.
                first, separator, width = value.partition("%")
                return ["--array", f"{first}-{first}{separator}{width}" if first.isdigit() else value]
            case "--dependency":
                return self._dependency(number, value)
            case "--nodes" if value != "1":
                raise self._refuse(number, f"--nodes={value}: a script runs on one node; see --count for more")
            case "--nodes" | "--ntasks" | "--cpus-per-task":
                return []
        option = SAME.get(name) or NAMED.get(name)
        if option is None:
            raise self._refuse(number, f"{name} is not an option that Kyu knows")
        return [option, value]

    def _memory(self, name: str, number: int, value: str) -> str:
        match = MEMORY.fullmatch(value)
        if match is None or int(match[1]) == 0:
            raise self._refuse(number, f"{name}={value}: write a size, for example 4G")
        amount = int(match[1]) * (self._cores() or 1 if name == "--mem-per-cpu" else 1)
        return f"{amount}{(match[2] or 'M').upper()}i"

    def _dependency(self, number: int, value: str) -> list[str]:
        found: list[str] = []
        for part in value.split(","):
            kind, *jobs = part.split(":")
            if part == job_order.SINGLETON:
                found += ["--after", part]
                continue
            if kind not in CONDITIONS or not jobs:
                known = "afterok:JOB, afterany:JOB, afternotok:JOB and singleton"
                raise self._refuse(number, f"--dependency={value}: only {known} are known")
            found += [word for job in jobs for word in ("--after", f"{CONDITIONS[kind]}:{job}")]
        return found

    def _count(self, name: str) -> int:
        number, value = self.given[name]
        if not value.isdigit() or value == "0":
            raise self._refuse(number, f"{name}={value}: write a number of 1 or more")
        return int(value)

    def _refuse(self, number: int, why: str) -> BadInput:
        return BadInput(f"{self._place(number)}: {why}")

    def _place(self, number: int) -> str:
        return self._script if number == COMMAND_LINE else f"{self._script}: line {number}"
