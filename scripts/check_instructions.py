#!/usr/bin/env python3
"""Fail when a pure step of an authorization takes more instructions than its baseline allows. Standard library only.

usage: check_instructions.py [--update] [--program FILE] [--baseline FILE]

It builds `benches/benches/steps.rs` and runs each step under valgrind, which counts inside of one function of it: setting up is
not counted. The count hardly depends on the machine and not on what else runs on it, so the gate is tight: more than 1.03
times the baseline fails. Hash tables are seeded at random, and with them it varies where memory is free and what it takes to get some. So a
step is counted three times: the highest is recorded as the baseline, and the lowest is compared with it.

exit code 0: every step is within its bound
          1: a step takes more, is missing, or is not in the baseline
          2: nothing can be said: no program, no valgrind, a baseline that is not one

--update writes the baseline from what was counted.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = [
    "canonicalize",
    "parse",
    "judge",
    "judge_10000",
    "answer",
    "body",
    "decide",
    "apply_1",
    "apply_32",
    "receipts_32",
    "entry_hash",
]
BOUND = 1.03
# Below this the baseline is worth recording anew; it does not fail.
FEWER = 0.9
# So often each step runs: what differs from time to time, as the growth of a table, is spread over them.
TIMES = 100
# So often it is counted: of the same program one count of a short step is up to a twentieth above another.
COUNTS = 3
# The function of the program that is counted, and all that it calls.
COUNTED = "*counted_steps*"
COUNT = re.compile(r"Collected\s*:\s*(\d+)")


class Unusable(Exception):
    """Nothing can be said."""


def build():
    """Builds the program and says where it is."""
    command = ["cargo", "bench", "--locked", "--package", "benches", "--bench", "steps", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise Unusable("the steps could not be built")
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    for message in messages:
        if message.get("target", {}).get("name") == "steps" and message.get("executable"):
            return message["executable"]
    raise Unusable("cargo built no program of that name")


def counted(output):
    """The number of instructions that valgrind tells of."""
    found = COUNT.search(output)
    if not found:
        raise Unusable(f"valgrind told no number of instructions: {output.strip()[-300:]}")
    instructions = int(found.group(1))
    if instructions == 0:
        raise Unusable(f"valgrind found no function `{COUNTED}` in the program")
    return instructions


def run(program, step, times):
    """How many instructions the program takes for so many times of a step."""
    valgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={COUNTED}", "--callgrind-out-file=/dev/null"]
    try:
        done = subprocess.run(
            [*valgrind, program, "--count", step, str(times)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise Unusable("valgrind is not installed") from None
    if done.returncode != 0:
        raise Unusable(f"the step `{step}` failed: {done.stderr.strip()[-300:]}")
    return counted(done.stderr)


def measure(program, which, count=run):
    """The instructions of each step, once. `which` chooses among the counts, as `min` does."""
    return {step: round(which(count(program, step, TIMES) for _ in range(COUNTS)) / TIMES) for step in STEPS}


def read_baseline(path):
    try:
        baseline = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"the baseline at `{path}` cannot be read: {error}") from None
    if not isinstance(baseline, dict) or not baseline:
        raise Unusable(f"the baseline at `{path}` is not an object with steps")
    for step, instructions in baseline.items():
        if isinstance(instructions, bool) or not isinstance(instructions, int) or instructions <= 0:
            raise Unusable(f"the baseline of `{step}` is `{instructions}`, which is not a positive whole number")
    return baseline


def compare(baseline, results):
    """A line for every step, and whether it fails."""
    rows = []
    for step in sorted(baseline.keys() | results.keys()):
        before, now = baseline.get(step), results.get(step)
        if before is None:
            rows.append((step, before, now, "not in the baseline", True))
        elif now is None:
            rows.append((step, before, now, "missing", True))
        else:
            ratio = now / before
            fails = ratio > BOUND
            verdict = f"{'more' if fails else 'ok'}, {ratio:.3f} times"
            if ratio < FEWER:
                verdict += " (far fewer: record a new baseline)"
            rows.append((step, before, now, verdict, fails))
    return rows


def print_table(rows):
    print(f"\n{'step':<14} {'baseline':>10} {'now':>10}  instructions")
    for step, before, now, verdict, fails in rows:
        print(f"{step:<14} {before or '-':>10} {now or '-':>10}  {'FAIL ' if fails else ''}{verdict}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="record a new baseline instead of comparing")
    parser.add_argument("--program", help="the built steps; without it they are built")
    parser.add_argument("--baseline", type=Path, default=ROOT / "benches/baselines/instructions.json")
    options = parser.parse_args(arguments)
    try:
        results = measure(options.program or build(), max if options.update else min)
        if options.update:
            options.baseline.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
            print(f"{len(results)} steps written to {options.baseline}")
            return 0
        rows = compare(read_baseline(options.baseline), results)
    except Unusable as unusable:
        print(f"check_instructions: {unusable}", file=sys.stderr)
        return 2
    print_table(rows)
    return 1 if any(fails for *_, fails in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
