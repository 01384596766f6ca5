"""pulsar-client installed beside it: both bring the module `pulsar`."""

from pathlib import Path

import _pulsar
import pytest


@pytest.fixture
def installed(tmp_path):
    """A folder that says that pulsar-client is installed."""
    (tmp_path / "pulsar_client-3.13.0.dist-info").mkdir()
    (tmp_path / "pulsar_client-3.13.0.dist-info" / "METADATA").write_text("Name: pulsar-client\nVersion: 3.13.0\n")
    return tmp_path


def test_alone_nothing_is_said(python):
    assert python("import pulsar, _pulsar").stderr == ""


def test_a_warning_says_that_both_are_there(python, installed):
    done = python("import pulsar; print(pulsar.Client)", [installed])
    assert done.stdout == "<class 'geminga.client.Client'>\n"
    assert "RuntimeWarning: pulsar-client and geminga-compat are both installed" in done.stderr


@pytest.mark.parametrize("program", ["import pulsar", "import _pulsar", "from _pulsar import Result"])
def test_a_mixture_of_both_is_refused(python, installed, program):
    (installed / "pulsar").mkdir()
    (installed / "pulsar" / "__init__.py").write_text("from _pulsar import Result\n")
    done = python(program, [installed, Path(_pulsar.__file__).parent.parent], check=False)
    assert done.returncode == 1
    assert "ImportError: pulsar-client and geminga-compat are both installed" in done.stderr
