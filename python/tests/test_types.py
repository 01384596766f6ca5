"""Types: the package and a program that uses it pass `mypy --strict`, and the stubs say what the extension module has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytest.importorskip("mypy", reason="types are checked where mypy is installed")


def check(module, *arguments):
    # Elsewhere, so that the installed package is found and not the source beside this file.
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent.parent / "tests", env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def cache(tmp_path_factory):
    return f"--cache-dir={tmp_path_factory.getbasetemp() / 'mypy'}"


def test_the_package_is_typed(cache):
    check("mypy", "--strict", cache, "-p", "geminga", "-p", "pulsar", "-p", "_pulsar")


def test_a_program_that_uses_it_is_checked(cache):
    check("mypy", "--strict", cache, str(HERE / "programs" / "typed.py"))


def test_the_stubs_are_what_the_extension_module_has():
    check("mypy.stubtest", "geminga", "--allowlist", str(HERE / "stubtest_allowlist.txt"), "--ignore-unused-allowlist")


def test_the_typed_program_runs():
    text = subprocess.run([sys.executable, str(HERE / "programs" / "typed.py")], capture_output=True, text=True, timeout=30)
    assert (text.stdout, text.stderr) == ("[b'a'] b'c'\n", "")
