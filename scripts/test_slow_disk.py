"""The slow disk is slow, and says nothing else than the command does."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "slow-disk"

# Syncs a file three times in each of the two ways, and says for how long at least each of them took.
SYNC = """
import os, tempfile, time
with tempfile.NamedTemporaryFile() as file:
    for sync in (os.fsync, os.fdatasync):
        took = []
        for _ in range(3):
            file.write(b"x")
            file.flush()
            began = time.monotonic()
            sync(file.fileno())
            took.append(time.monotonic() - began)
        print(min(took) * 1000)
"""


def slowed(*arguments, **variables):
    environment = os.environ | variables
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False)


class SlowDisk(unittest.TestCase):
    def test_every_sync_takes_as_much_longer_as_it_says(self):
        done = slowed("20.5", sys.executable, "-c", SYNC)
        self.assertEqual(done.returncode, 0, done.stderr)
        times = [float(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(times), 2)
        for milliseconds in times:
            self.assertGreaterEqual(milliseconds, 20.5)

    def test_the_exit_code_is_that_of_the_command(self):
        self.assertEqual(slowed("1", "sh", "-c", "exit 7").returncode, 7)

    def test_a_folder_that_the_loader_cannot_be_told_is_refused(self):
        for name in ("my disk", "my:disk"):
            with self.subTest(name), tempfile.TemporaryDirectory(suffix=name) as folder:
                done = slowed("1", "echo", "it ran", TMPDIR=folder)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("set TMPDIR to another one", done.stderr)
                self.assertEqual(os.listdir(folder), [])

    def test_what_is_no_time_is_refused(self):
        for arguments in [(), ("5",), ("soon", "true"), ("-1", "true"), ("1e3", "true")]:
            done = slowed(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("usage:", done.stderr)


if __name__ == "__main__":
    unittest.main()
