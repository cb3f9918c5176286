"""
Matching of users' regular expressions against names of pools, in a process that can be killed.

A Python expression can run practically for ever and cannot be interrupted within its process. A helper process
evaluates them. After a timeout it is killed, and the expression does not select that pool. Answers are cached, and an
expression that timed out several times is not tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import OrderedDict
from dataclasses import dataclass

# In CPU time, so that a busy machine causes no timeout; the wall-clock limit is the last resort.
LIMIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 5.0
START_SECONDS = 20.0
MOST_CUT_OFFS = 3
REMEMBERED_ANSWERS = 20_000
# Reads [expression, whole, text] lines, and answers true, false or an error message. The timer kills it.
PROGRAM = """
import json, re, signal, sys
limit = float(sys.argv[1])
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    expression, whole, text = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        found = re.fullmatch(expression, text) if whole else re.search(expression, text)
        answer = found is not None
    except (re.error, RecursionError, OverflowError) as error:
        answer = str(error)
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True, slots=True)
class ExpressionQuery:
    expression: str
    whole: bool
    pool: str


@dataclass(frozen=True, slots=True)
class ExpressionAnswer:
    """Whether the expression selects the pool. With an ``error`` it does not."""

    selected: bool
    error: str = ""


class Expressions:
    def __init__(self) -> None:
        self._answers: OrderedDict[ExpressionQuery, ExpressionAnswer] = OrderedDict()
        self._cut_offs: dict[tuple[str, bool], int] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()

    def find(self, question: ExpressionQuery) -> ExpressionAnswer | None:
        """Return the cached answer, if there is one."""
        known = self._answers.get(question)
        if known is None and self._cut_offs.get((question.expression, question.whole), 0) >= MOST_CUT_OFFS:
            return ExpressionAnswer(False, "it took too long for several pools, and is not tried any more")
        return known

    async def ask(self, question: ExpressionQuery) -> ExpressionAnswer:
        async with self._one_at_a_time:
            known = self.find(question)
            if known is not None:
                return known
            verdict = await self._evaluate(question)
            self._answers[question] = verdict
            if len(self._answers) > REMEMBERED_ANSWERS:
                self._answers.popitem(last=False)
            return verdict

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _evaluate(self, question: ExpressionQuery) -> ExpressionAnswer:
        process = self._process = self._process or await self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps([question.expression, question.whole, question.pool]).encode() + b"\n")
        try:
            answer = await self._read(process, LONGEST_WAIT_SECONDS)
        except TimeoutError:
            await self.close()
            name = (question.expression, question.whole)
            self._cut_offs[name] = self._cut_offs.get(name, 0) + 1
            return ExpressionAnswer(
                False, f"it took longer than {LIMIT_SECONDS} s for pool {question.pool} and was cut off"
            )
        if isinstance(answer, str):
            return ExpressionAnswer(False, answer)
        return ExpressionAnswer(bool(answer))

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(LIMIT_SECONDS)]
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
        await self._read(process, START_SECONDS)
        return process

    async def _read(self, process: asyncio.subprocess.Process, seconds: float) -> object:
        assert process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await process.stdout.readline()
        if not line:
            # The timer has killed it.
            raise TimeoutError
        return json.loads(line)
