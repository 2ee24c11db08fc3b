"""The gate on instructions fails when it should, and says nothing when nothing can be said."""

import itertools
import json
import re
import tempfile
import unittest
from pathlib import Path

import check_instructions as gate


class Comparing(unittest.TestCase):
    def verdicts(self, baseline, results):
        return {step: fails for step, _, _, _, fails in gate.compare(baseline, results)}

    def test_what_takes_as_many_or_fewer_passes(self):
        self.assertEqual(self.verdicts({"judge": 1000, "parse": 10}, {"judge": 1030, "parse": 5}), {"judge": False, "parse": False})

    def test_what_takes_more_fails(self):
        self.assertEqual(self.verdicts({"judge": 1000}, {"judge": 1031}), {"judge": True})

    def test_a_missing_and_an_unknown_step_fail(self):
        self.assertEqual(self.verdicts({"judge": 1000}, {"parse": 10}), {"judge": True, "parse": True})


class Measuring(unittest.TestCase):
    def test_a_step_is_counted_once(self):
        results = gate.measure("program", min, lambda _program, step, times: len(step) * times)
        self.assertEqual(results, {step: len(step) for step in gate.STEPS})

    def test_of_some_counts_one_is_chosen(self):
        for which, chosen in [(min, 1001), (max, 1003)]:
            extra = itertools.cycle([2, 1, 3])
            results = gate.measure("program", which, lambda _program, _step, times: (1000 + next(extra)) * times)
            self.assertEqual(set(results.values()), {chosen})

    def test_the_number_is_found_in_what_valgrind_says(self):
        self.assertEqual(gate.counted("==7== Events    : Ir\n==7== Collected : 3204118\n==7==\n"), 3204118)
        for output in ["==7== no such thing", "==7== Collected : 0"]:
            with self.assertRaises(gate.Unusable, msg=output):
                gate.counted(output)

    def test_every_step_of_the_program_is_counted(self):
        source = (gate.ROOT / "benches/benches/steps.rs").read_text(encoding="utf-8")
        table = source[source.index("const STEPS") :].split("];")[0]
        self.assertEqual(re.findall(r'\("(\w+)",', table), gate.STEPS)
        self.assertIn(f"fn {gate.COUNTED.strip('*')}(", source)


class Baselines(unittest.TestCase):
    def test_what_is_no_baseline_is_refused(self):
        for text in ["", "[]", "{}", '{"judge": 0}', '{"judge": 1.5}', '{"judge": "7"}', '{"judge": true}']:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "baseline.json")
                path.write_text(text, encoding="utf-8")
                with self.assertRaises(gate.Unusable, msg=text):
                    gate.read_baseline(path)

    def test_the_baseline_of_the_project_has_every_step(self):
        baseline = gate.read_baseline(gate.ROOT / "benches/baselines/instructions.json")
        self.assertEqual(sorted(baseline), sorted(gate.STEPS))
        self.assertEqual(json.loads(json.dumps(baseline)), baseline)


if __name__ == "__main__":
    unittest.main()
