#!/usr/bin/env python3
"""Proves that the regression gate fails when it should, and only then."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import check_bench_regression as gate

TIMES = {
    "calibration/cpu": 100_000.0,
    "calibration/fsync_4k": 150_000.0,
    "canon/flat": 400.0,
    "authorize/allow": 300_000.0,
}


class GateTest(unittest.TestCase):
    """A folder with criterion's results, a calibration and a baseline recorded from them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.baseline = self.folder / "baseline.json"
        self.calibration = self.folder / "calibration.rs"
        self.calibration.write_text("// fixed work\n", encoding="utf-8")
        self.measure(TIMES)
        self.assertEqual(self.run_gate("--update")[0], 0)
        self.edit(lambda baseline: baseline["benchmarks"]["authorize/allow"].update(
            scaled_by=["calibration/cpu", "calibration/fsync_4k"]))

    def result(self, name):
        return self.folder / "criterion" / name.replace("/", "_") / "new" / "estimates.json"

    def measure(self, times):
        for name, nanoseconds in times.items():
            path = self.result(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"median": {"point_estimate": nanoseconds}}), encoding="utf-8")
            path.with_name("benchmark.json").write_text(json.dumps({"full_id": name}), encoding="utf-8")

    def edit(self, change):
        baseline = json.loads(self.baseline.read_text(encoding="utf-8"))
        change(baseline)
        self.baseline.write_text(json.dumps(baseline), encoding="utf-8")

    def age(self, name):
        old = os.path.getmtime(self.result(name)) - gate.RUN_SECONDS_MAX - 1
        os.utime(self.result(name), (old, old))

    def run_gate(self, *arguments):
        """The exit code and everything printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = gate.main([
                "--criterion", str(self.folder / "criterion"), "--baseline", str(self.baseline),
                "--calibration", str(self.calibration), *arguments])
        return code, out.getvalue()

    def assert_gate(self, code, *words, arguments=()):
        actual, printed = self.run_gate(*arguments)
        self.assertEqual(actual, code, printed)
        for word in words:
            self.assertIn(word, printed)


class Regressions(GateTest):
    def test_the_same_times_pass(self):
        self.assert_gate(0, "2 of 2 benchmarks are within their threshold")

    def test_twice_as_slow_fails_and_names_the_benchmark(self):
        self.measure({"canon/flat": 800.0})
        self.assert_gate(1, "canon/flat", "FAIL slower, 2.00 times", "1 of 2 benchmarks")

    def test_just_below_the_threshold_passes_and_just_above_fails(self):
        self.measure({"canon/flat": 599.0})
        self.assert_gate(0)
        self.measure({"canon/flat": 601.0})
        self.assert_gate(1)

    def test_a_slower_machine_with_the_same_ratios_passes(self):
        self.measure({name: 3 * nanoseconds for name, nanoseconds in TIMES.items()})
        self.assert_gate(0, "calibration/cpu: this machine takes 3.00 times as long")

    def test_a_faster_machine_does_not_hide_a_regression(self):
        self.measure({name: nanoseconds / 2 for name, nanoseconds in TIMES.items()} | {"canon/flat": 400.0})
        self.assert_gate(1, "slower, 2.00 times")

    def test_a_slow_disk_excuses_what_waits_for_it_and_nothing_else(self):
        slow_disk = {"calibration/fsync_4k": 1_500_000.0}
        self.measure(slow_disk | {"authorize/allow": 1_650_000.0})
        self.assert_gate(0)
        self.measure(slow_disk | {"canon/flat": 800.0})
        self.assert_gate(1, "canon/flat")

    def test_what_is_much_faster_than_the_disk_that_it_waits_for_fails(self):
        self.measure({"calibration/fsync_4k": 1_200_000.0, "authorize/allow": 301_000.0})
        self.assert_gate(0)
        self.measure({"authorize/allow": 299_000.0})
        self.assert_gate(1, "FAIL faster than the disk, 0.25 times a sync", "1 of 2 benchmarks")

    def test_a_threshold_of_its_own_replaces_the_default(self):
        self.edit(lambda baseline: baseline["benchmarks"]["canon/flat"].update(threshold=2.5, reason="noisy"))
        self.measure({"canon/flat": 900.0})
        self.assert_gate(0)
        self.measure({"canon/flat": 1_100.0})
        self.assert_gate(1)

    def test_what_was_timed_beside_a_server_is_left_aside(self):
        self.measure({"store_commit_postgres/32": 1_000_000.0})
        self.age("store_commit_postgres/32")
        self.assert_gate(0, "2 of 2 benchmarks")
        self.assertEqual(self.run_gate("--update")[0], 0)
        self.assertNotIn("postgres", self.baseline.read_text(encoding="utf-8"))

    def test_much_faster_passes_and_asks_for_a_new_baseline(self):
        self.measure({"canon/flat": 100.0})
        self.assert_gate(0, "record a new baseline")

    def test_a_missing_benchmark_fails(self):
        self.result("canon/flat").unlink()
        self.assert_gate(1, "FAIL missing")

    def test_a_result_of_an_earlier_run_fails(self):
        self.age("canon/flat")
        self.assert_gate(1, "FAIL of an earlier run")

    def test_a_benchmark_that_is_not_in_the_baseline_fails(self):
        self.measure({"canon/deep": 10.0})
        self.assert_gate(1, "canon/deep", "FAIL not in the baseline")

    def test_a_calibration_that_is_not_in_the_baseline_fails(self):
        self.measure({"calibration/other": 10.0})
        self.assert_gate(1, "calibration/other", "FAIL not in the baseline")


class Unusable(GateTest):
    def test_no_results_at_all(self):
        for name in TIMES:
            self.result(name).unlink()
        self.assert_gate(2, "there are no results")

    def test_a_missing_calibration(self):
        self.result("calibration/cpu").unlink()
        self.assert_gate(2, "`calibration/cpu` was not measured")

    def test_a_calibration_of_an_earlier_run(self):
        self.age("calibration/cpu")
        self.assert_gate(2, "`calibration/cpu` was measured in an earlier run")

    def test_results_that_are_all_of_an_earlier_run(self):
        newest = max(os.path.getmtime(self.result(name)) for name in TIMES)
        for verb in ((), ("--update",)):
            with self.subTest(verb):
                words = "was measured in an earlier run"
                self.assert_gate(2, words, arguments=(*verb, "--since", str(newest + 1)))
                self.assert_gate(0, arguments=(*verb, "--since", str(newest - 60)))

    def test_a_changed_calibration(self):
        self.calibration.write_text("// more work\n", encoding="utf-8")
        self.assert_gate(2, "the calibrations have changed")

    def test_a_missing_calibration_source(self):
        self.calibration.unlink()
        self.assert_gate(2, "cannot be read")

    def test_impossible_times(self):
        for impossible in (0.0, -1.0, float("nan"), float("inf"), None, "400", True):
            for name in ("canon/flat", "calibration/cpu"):
                with self.subTest(name=name, time=impossible):
                    self.measure(TIMES | {name: impossible})
                    self.assert_gate(2, f"the time of `{name}`", "not a positive number")

    def test_a_result_that_is_not_json_or_not_criterions(self):
        for text in ("", "{", "[]", "{}", '{"median": 4}'):
            with self.subTest(text=text):
                self.result("canon/flat").write_text(text, encoding="utf-8")
                self.assert_gate(2)

    def test_two_results_of_one_benchmark(self):
        self.measure({"canon/copy": 1.0})
        self.result("canon/copy").with_name("benchmark.json").write_text('{"full_id": "canon/flat"}', encoding="utf-8")
        self.assert_gate(2, "two results of `canon/flat`")

    def test_no_baseline(self):
        self.baseline.unlink()
        self.assert_gate(2, "there is no baseline")

    def test_a_baseline_that_was_tampered_with(self):
        def flat(**values):
            return lambda baseline: baseline["benchmarks"]["canon/flat"].update(values)

        tampered = {
            "not an object": lambda baseline: baseline.update(benchmarks=[1]),
            "no benchmarks": lambda baseline: baseline.update(benchmarks={}),
            "no calibrations": lambda baseline: baseline.update(calibrations={}),
            "no digest": lambda baseline: baseline.pop("calibration_sha256"),
            "another digest": lambda baseline: baseline.update(calibration_sha256="0" * 64),
            "an unknown key": lambda baseline: baseline.update(skip=["canon/flat"]),
            "an unknown key of a benchmark": flat(skip=True),
            "no time": lambda baseline: baseline["benchmarks"]["canon/flat"].pop("nanoseconds"),
            "an infinite time": flat(nanoseconds=float("inf")),
            "a calibration of zero": lambda baseline: baseline["calibrations"].update({"calibration/cpu": 0}),
            "scaled by itself": flat(scaled_by=["canon/flat"]),
            "scaled by nothing": flat(scaled_by=[]),
            "a threshold without a reason": flat(threshold=2.0),
            "a threshold that lets everything through": flat(threshold=1000.0, reason="quiet"),
            "a threshold that is not a number": flat(threshold=float("nan"), reason="quiet"),
            "a threshold that nothing can meet": flat(threshold=0.5, reason="strict"),
        }
        good = self.baseline.read_text(encoding="utf-8")
        for what, change in tampered.items():
            with self.subTest(what):
                self.baseline.write_text(good, encoding="utf-8")
                self.edit(change)
                self.assert_gate(2)
        self.baseline.write_text("{", encoding="utf-8")
        self.assert_gate(2, "cannot be read")


class Update(GateTest):
    def test_an_update_makes_the_new_times_the_expected_ones(self):
        self.measure({"canon/flat": 800.0, "canon/deep": 10.0})
        self.assert_gate(1)
        self.assertEqual(self.run_gate("--update")[0], 0)
        self.assert_gate(0, "3 of 3")

    def test_an_update_keeps_what_people_decided(self):
        self.edit(lambda baseline: baseline["benchmarks"]["canon/flat"].update(threshold=2.5, reason="noisy"))
        self.measure({"canon/flat": 800.0})
        self.assertEqual(self.run_gate("--update")[0], 0)
        benchmarks = json.loads(self.baseline.read_text(encoding="utf-8"))["benchmarks"]
        self.assertEqual(benchmarks["canon/flat"], {
            "nanoseconds": 800.0, "scaled_by": ["calibration/cpu"], "threshold": 2.5, "reason": "noisy"})
        self.assertEqual(benchmarks["authorize/allow"]["scaled_by"], ["calibration/cpu", "calibration/fsync_4k"])

    def test_an_update_says_what_it_drops(self):
        self.result("canon/flat").unlink()
        code, printed = self.run_gate("--update")
        self.assertEqual(code, 0)
        self.assertIn("no longer in the baseline: canon/flat", printed)

    def test_an_update_from_bad_results_writes_nothing(self):
        before = self.baseline.read_bytes()
        for spoil in (
            lambda: self.measure({"canon/flat": float("nan")}),
            lambda: (self.measure(TIMES), self.age("canon/flat")),
            lambda: (self.measure(TIMES), self.result("calibration/cpu").unlink()),
        ):
            spoil()
            self.assertEqual(self.run_gate("--update")[0], 2)
            self.assertEqual(self.baseline.read_bytes(), before)


class CheckedIn(unittest.TestCase):
    def test_the_baseline_of_this_repository_is_one(self):
        baseline = gate.read_baseline(gate.ROOT / "benches/baselines/criterion.json")
        calibration = gate.ROOT / "benches/benches/calibration.rs"
        self.assertEqual(baseline["calibration_sha256"], gate.digest(calibration))


if __name__ == "__main__":
    unittest.main()
