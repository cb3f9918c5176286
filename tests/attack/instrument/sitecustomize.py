"""
Measures the rounds of the event loop of a server: what holds it for long.

Python imports a module of this name at its start. With this folder in ``PYTHONPATH`` and a file in ``KYU_LOOP_ROUNDS``,
a Kyu server writes each round of more than 20 ms of processor time to the file, with the places where it was. The same
file with ``.all`` has the share of each function in all samples.
"""

import os
import sys
import threading
import time
from collections import Counter

LONG_SECONDS = 0.02
BEAT_SECONDS = 0.005
SAMPLE_SECONDS = 0.002
DEPTH = 14
# Frames of a server whose loop waits.
IDLE_DEPTH = 14


def install(path):
    import uvloop

    run = uvloop.run

    def watched(main, **options):
        async def measured():
            Watch(path).start()
            return await main

        return run(measured(), **options)

    uvloop.run = watched


class Watch:
    def __init__(self, path):
        self._file = open(path, "a", buffering=1)  # noqa: SIM115
        self._thread = threading.main_thread().ident
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._samples = Counter()
        self._path = path
        self._by_function = Counter()

    def start(self):
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._last_cpu, self._last = time.clock_gettime(self._clock), time.monotonic()
        threading.Thread(target=self._sample, daemon=True).start()
        self._beat()

    def _beat(self):
        cpu, now = time.clock_gettime(self._clock), time.monotonic()
        used = cpu - self._last_cpu
        samples, self._samples = self._samples, Counter()
        if used > LONG_SECONDS:
            places = "".join(f"\n    {count:4} {stack}" for stack, count in samples.most_common(4))
            self._file.write(f"{used * 1000:.0f} ms of {(now - self._last) * 1000:.0f} ms{places}\n")
        self._last_cpu, self._last = cpu, now
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _sample(self):
        count = 0
        while True:
            time.sleep(SAMPLE_SECONDS)
            count += 1
            if count % 2000 == 0:
                lines = [f"{samples:6} {name}\n" for name, samples in self._by_function.most_common(150)]
                with open(self._path + ".all", "w") as file:
                    file.writelines(lines)
            frame, found = sys._current_frames().get(self._thread), []
            while frame is not None:
                code = frame.f_code
                found.append(f"{code.co_filename.rpartition('/')[2][:-3]}.{code.co_name}:{frame.f_lineno}")
                frame = frame.f_back
            if len(found) > IDLE_DEPTH:
                self._by_function.update({name.partition(":")[0] for name in found})
                self._samples[" < ".join(found[:DEPTH])] += 1


if (_path := os.environ.get("KYU_LOOP_ROUNDS")) and "up" in sys.argv + sys.orig_argv:
    install(_path)
