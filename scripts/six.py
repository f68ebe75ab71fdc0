#!/usr/bin/env python3
"""Compares the processor time of six modules together with that of flow alone, on one capture."""

import os
import resource
import subprocess
import sys

SIX = "dns,tls,http,tcp,talkers,scan"
ROUNDS = 5


def used(modules, expose, trace):
    """Returns the seconds of processor time of a run."""

    def so_far():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = so_far()
    run = [os.environ["FLAME"], "run", modules, "-r", trace, "-q", "--format", "json", "--expose", expose]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    return so_far() - before


def main():
    if len(sys.argv) != 2:
        sys.exit("six: expected a capture: make six TRACE=FILE")
    runs = {"flow": "headers", SIX: "payload:4096"}
    # The first run compiles.
    times = {modules: [] for modules in runs}
    for round in range(ROUNDS + 1):
        for modules, expose in runs.items():
            seconds = used(modules, expose, sys.argv[1])
            if round > 0:
                times[modules].append(seconds)
    alone, together = min(times["flow"]), min(times[SIX])
    print(f"flow {alone:.3f} s; {SIX} {together:.3f} s; ratio {together / alone:.2f}")


main()
