"""Scripts can be started from anywhere, and say how they are to be used."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent


def run(command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "COUNTERSIGN_TEST_POSTGRES_URL"}
    # What a script leaves for others to remove is removed with the folder of the test.
    environment["TMPDIR"] = str(folder)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_what_starts_itself_again_beside_a_server_can_be_started_from_any_folder(self):
        scripts = self.folder / "root" / "scripts"
        elsewhere = self.folder / "root" / "elsewhere"
        elsewhere.mkdir(parents=True)
        scripts.mkdir()
        server = scripts / "with-postgres"
        server.write_text('#!/bin/sh\npwd\nls "$1"\necho "$2"\n')
        server.chmod(0o755)
        for name in ("check", "prepare-sqlx"):
            shutil.copy(SCRIPTS / name, scripts / name)
            for command in (f"../scripts/{name}", str(scripts / name)):
                with self.subTest(command):
                    done = run([command, "--option"], elsewhere)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    root = os.path.realpath(self.folder / "root")
                    self.assertEqual(done.stdout, f"{root}\nscripts/{name}\n--option\n")

    def test_a_check_without_what_others_have_published_says_so_and_fails_in_ci(self):
        root = self.folder / "root"
        programs = self.folder / "programs"
        (root / "scripts").mkdir(parents=True)
        programs.mkdir()
        shutil.copy(SCRIPTS / "check", root / "scripts")
        shutil.copytree(SCRIPTS / "lib", root / "scripts" / "lib")
        # Everything that it runs passes at once.
        stubs = [programs / name for name in ("cargo", "python3", "cc", "curl", "cvc5")]
        for program in [*stubs, root / "scripts" / "prepare-sqlx"]:
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)

        def check(ci):
            environment = os.environ | {"COUNTERSIGN_TEST_POSTGRES_URL": "there", "CI": ci}
            environment["PATH"] = f"{programs}:{environment['PATH']}"
            command = [str(root / "scripts" / "check")]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            return done.returncode, "all checks passed" in done.stdout, done.stderr.count("NOT tested")

        self.assertEqual(check(""), (0, True, 2))
        self.assertEqual(check("1"), (1, False, 1))
        (self.folder / "shared" / "vectors").mkdir(parents=True)
        self.assertEqual(check("1"), (1, False, 1))
        (self.folder / "shared" / "data").mkdir()
        self.assertEqual(check("1"), (0, True, 0))

    def test_a_server_is_not_started_without_a_folder(self):
        for arguments in ([], ["start"], ["start", "here", "there"]):
            with self.subTest(arguments):
                done = run([str(SCRIPTS / "postgres"), *arguments], self.folder)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, r"^usage: .*postgres start\|stop\|crash FOLDER\n$")


if __name__ == "__main__":
    unittest.main()
