#!/usr/bin/env python3
"""Fail when a benchmark has become slower than its baseline allows. Standard library only.

usage: check_bench_regression.py [--update] [--since SECONDS] [--criterion DIR] [--baseline FILE] [--calibration FILE]

Run it after `cargo bench -p benches`. It reads what criterion left in target/criterion (the median of each
benchmark) and compares it with benches/baselines/criterion.json. What was left before `--since`, in seconds of
Unix time, is of an earlier run.

Times of different machines cannot be compared, so every run also times calibrations: fixed workloads that have
nothing to do with our code (benches/benches/calibration.rs). The slowdown of a machine is the time of a
calibration here over its time in the baseline; a benchmark is expected to take its baseline time multiplied by the
largest slowdown among the calibrations it is `scaled_by`. It fails when it takes more than `threshold` times that,
and one that waits for the disk also when it takes much less than a sync of the disk does: then it does not wait.

exit code 0: every benchmark is within its threshold
          1: a benchmark is slower, faster than the disk, missing, measured in another run, or not in the baseline
          2: nothing can be said: no results, no calibration, an impossible number, a baseline that is not one

--update writes the baseline from the results; thresholds, their reasons and `scaled_by` are kept.

Benchmarks that need a server are not held against anything: they are run where there is one, and not by the gate.
"""

import argparse
import hashlib
import json
import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CALIBRATION = "calibration/"
# A sync of the disk: whatever is scaled by it ends in one at least.
SYNC = "calibration/fsync_4k"
# A log that keeps its size is synced faster than the calibration's file, which grows: the file system's journal is no part of it.
SYNC_SHARE_MIN = 1 / 4
# What is timed only where a PostgreSQL server is at hand.
BESIDE_A_SERVER = "store_commit_postgres/"
DEFAULT_SCALED_BY = ["calibration/cpu"]
DEFAULT_THRESHOLD = 1.5
# A gate that lets more than this through guards nothing.
THRESHOLD_MAX = 5.0
# The whole run takes minutes. Results further apart than this are of different runs, perhaps of different code.
RUN_SECONDS_MAX = 30 * 60
# Below this the baseline is worth recording anew; it does not fail.
FASTER = 1 / 1.5


class Unusable(Exception):
    """Nothing can be said about these results."""


class Result(NamedTuple):
    """What criterion measured of one benchmark."""

    nanoseconds: float
    taken_at: float


class Row(NamedTuple):
    """One line of the comparison."""

    name: str
    nanoseconds: float | None
    expected: float | None
    threshold: float | None
    verdict: str
    fails: bool


def positive(value, what):
    """The value, if it is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise Unusable(f"{what} is `{value}`, which is not a positive number")
    return float(value)


def read_json(path, what):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unusable(f"there is no {what} at `{path}`") from None
    except (OSError, ValueError) as error:
        raise Unusable(f"the {what} at `{path}` cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise Unusable(f"the {what} at `{path}` is not an object")
    return value


def read_results(criterion):
    """Every benchmark under criterion's folder, by its full id."""
    results = {}
    for estimates in sorted(criterion.glob("**/new/estimates.json")):
        name = read_json(estimates.with_name("benchmark.json"), "benchmark").get("full_id")
        median = read_json(estimates, "result").get("median")
        if not isinstance(name, str) or not isinstance(median, dict):
            raise Unusable(f"`{estimates}` is not a result of criterion")
        if name.startswith(BESIDE_A_SERVER):
            continue
        if name in results:
            raise Unusable(f"there are two results of `{name}`")
        nanoseconds = positive(median.get("point_estimate"), f"the time of `{name}`")
        results[name] = Result(nanoseconds, os.path.getmtime(estimates))
    if not results:
        raise Unusable(f"there are no results in `{criterion}`: run `cargo bench -p benches` first")
    return results


def digest(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise Unusable(f"the calibration at `{path}` cannot be read: {error}") from None


def only_keys(value, allowed, what):
    if not isinstance(value, dict):
        raise Unusable(f"{what} is not an object")
    if unknown := sorted(set(value) - set(allowed)):
        raise Unusable(f"{what} has an unknown key `{unknown[0]}`")


def read_baseline(path):
    """The checked-in baseline, with every rule about its content enforced."""
    baseline = read_json(path, "baseline")
    only_keys(baseline, ["calibration_sha256", "calibrations", "benchmarks"], "the baseline")
    calibrations, benchmarks = baseline.get("calibrations"), baseline.get("benchmarks")
    if not calibrations or not benchmarks or not isinstance(baseline.get("calibration_sha256"), str):
        raise Unusable("the baseline lacks `calibration_sha256`, `calibrations` or `benchmarks`")
    if not isinstance(calibrations, dict) or not isinstance(benchmarks, dict):
        raise Unusable("`calibrations` and `benchmarks` of the baseline are not objects")
    for name, nanoseconds in calibrations.items():
        positive(nanoseconds, f"the baseline of `{name}`")
    for name, entry in benchmarks.items():
        check_entry(name, entry, calibrations)
    return baseline


def check_entry(name, entry, calibrations):
    only_keys(entry, ["nanoseconds", "scaled_by", "threshold", "reason"], f"the baseline of `{name}`")
    positive(entry.get("nanoseconds"), f"the baseline of `{name}`")
    scaled_by = entry.get("scaled_by")
    if not isinstance(scaled_by, list) or not scaled_by:
        raise Unusable(f"the baseline of `{name}` does not say what it is scaled by")
    for calibration in scaled_by:
        if calibration not in calibrations:
            raise Unusable(f"`{name}` is scaled by `{calibration}`, which is no calibration of the baseline")
    if "threshold" in entry:
        threshold = positive(entry["threshold"], f"the threshold of `{name}`")
        if not 1 < threshold <= THRESHOLD_MAX:
            raise Unusable(f"the threshold of `{name}` is {threshold}; it should be above 1, at most {THRESHOLD_MAX}")
        if not str(entry.get("reason") or "").strip():
            raise Unusable(f"the threshold of `{name}` has no reason")


def begin_of_run(results, since):
    """The earliest time at which the run of the newest result can have begun."""
    newest = max(result.taken_at for result in results.values())
    return max(newest - RUN_SECONDS_MAX, since)


def slowdowns(baseline, results, begin, calibration_source):
    """How much slower this machine is than that of the baseline, by calibration."""
    if digest(calibration_source) != baseline["calibration_sha256"]:
        raise Unusable("the calibrations have changed since the baseline was recorded: record it anew with --update")
    for name in baseline["calibrations"]:
        if name not in results:
            raise Unusable(f"the calibration `{name}` was not measured")
    for name in baseline["calibrations"]:
        if results[name].taken_at < begin:
            raise Unusable(f"the calibration `{name}` was measured in an earlier run")
    return {name: results[name].nanoseconds / then for name, then in baseline["calibrations"].items()}


def compare(baseline, results, begin, calibration_source):
    """A row for every benchmark that is in the baseline or in the results."""
    slower_by = slowdowns(baseline, results, begin, calibration_source)
    rows = []
    for name, entry in sorted(baseline["benchmarks"].items()):
        expected = entry["nanoseconds"] * max(slower_by[calibration] for calibration in entry["scaled_by"])
        row = judge(name, results.get(name), begin, expected, entry.get("threshold", DEFAULT_THRESHOLD))
        if not row.fails and SYNC in entry["scaled_by"]:
            row = hold_against_disk(row, results[SYNC].nanoseconds)
        rows.append(row)
    for name, result in sorted(results.items()):
        if name not in baseline["benchmarks"] and name not in baseline["calibrations"]:
            rows.append(Row(name, result.nanoseconds, None, None, "not in the baseline", True))
    return rows, slower_by


def judge(name, result, begin, expected, threshold):
    if result is None:
        return Row(name, None, expected, threshold, "missing", True)
    if result.taken_at < begin:
        return Row(name, result.nanoseconds, expected, threshold, "of an earlier run", True)
    ratio = result.nanoseconds / expected
    if ratio > threshold:
        return Row(name, result.nanoseconds, expected, threshold, f"slower, {ratio:.2f} times", True)
    verdict = f"ok, {ratio:.2f} times"
    if ratio < FASTER:
        verdict += " (much faster: record a new baseline)"
    return Row(name, result.nanoseconds, expected, threshold, verdict, False)


def hold_against_disk(row, sync):
    """The row, failed if it takes so little that it cannot have waited for a sync."""
    share = row.nanoseconds / sync
    if share >= SYNC_SHARE_MIN:
        return row
    return row._replace(verdict=f"faster than the disk, {share:.2f} times a sync: does it still wait for it?", fails=True)


def human(nanoseconds):
    if nanoseconds is None:
        return "-"
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}" if nanoseconds < 1000 * size else f"{nanoseconds / size:.0f} {unit}"
    return f"{nanoseconds:.3g} ns"


def print_table(rows, slower_by):
    for name, factor in sorted(slower_by.items()):
        print(f"{name}: this machine takes {factor:.2f} times as long as that of the baseline")
    width = max(len(row.name) for row in rows)
    print(f"\n{'benchmark':<{width}}  {'measured':>9}  {'expected':>9}  {'at most':>9}")
    for row in rows:
        limit = row.expected * row.threshold if row.expected and row.threshold else None
        mark = "FAIL" if row.fails else "    "
        numbers = f"{human(row.nanoseconds):>9}  {human(row.expected):>9}  {human(limit):>9}"
        print(f"{row.name:<{width}}  {numbers}  {mark} {row.verdict}")


def update(path, results, begin, calibration_source):
    """Writes a baseline of these results; what people decided about a benchmark stays as it is."""
    old = read_baseline(path)["benchmarks"] if path.exists() else {}
    calibrations = {name: result for name, result in results.items() if name.startswith(CALIBRATION)}
    if not calibrations:
        raise Unusable("no calibration was measured")
    benchmarks = {}
    for name, result in sorted(results.items()):
        if result.taken_at < begin:
            raise Unusable(f"`{name}` was measured in an earlier run: run all benchmarks, or remove its results")
        if name not in calibrations:
            entry = {"nanoseconds": round(result.nanoseconds, 1), "scaled_by": DEFAULT_SCALED_BY}
            kept = {key: value for key, value in old.get(name, {}).items() if key != "nanoseconds"}
            benchmarks[name] = entry | kept
    baseline = {
        "calibration_sha256": digest(calibration_source),
        "calibrations": {name: round(result.nanoseconds, 1) for name, result in sorted(calibrations.items())},
        "benchmarks": benchmarks,
    }
    for name, entry in benchmarks.items():
        check_entry(name, entry, baseline["calibrations"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(baseline, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(benchmarks)} benchmarks and {len(calibrations)} calibrations written to {path}")
    for name in sorted(set(old) - set(benchmarks)):
        print(f"no longer in the baseline: {name}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="record a new baseline instead of comparing")
    parser.add_argument("--since", type=float, default=0.0, help="when the run began, in seconds of Unix time")
    parser.add_argument("--criterion", type=Path, default=ROOT / "target/criterion", help="criterion's results")
    parser.add_argument("--baseline", type=Path, default=ROOT / "benches/baselines/criterion.json")
    parser.add_argument("--calibration", type=Path, default=ROOT / "benches/benches/calibration.rs")
    options = parser.parse_args(arguments)
    try:
        results = read_results(options.criterion)
        begin = begin_of_run(results, options.since)
        if options.update:
            update(options.baseline, results, begin, options.calibration)
            return 0
        rows, slower_by = compare(read_baseline(options.baseline), results, begin, options.calibration)
    except Unusable as unusable:
        print(f"check_bench_regression: {unusable}", file=sys.stderr)
        return 2
    print_table(rows, slower_by)
    failed = [row.name for row in rows if row.fails]
    print(f"\n{len(rows) - len(failed)} of {len(rows)} benchmarks are within their threshold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
