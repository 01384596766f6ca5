"""What is installed: wheels that say where they run, and nothing that another package could disagree with."""

import re
import subprocess
import sys
from importlib import metadata

import geminga
import pytest


@pytest.fixture
def distribution():
    distribution = metadata.distribution("geminga")
    if distribution.read_text("WHEEL") is None:
        pytest.skip("geminga is not installed from a wheel")
    return distribution


def test_pb229_the_wheel_is_for_every_cpython_from_its_own_on(distribution):
    tags = re.findall("^Tag: (.*)$", distribution.read_text("WHEEL"), re.MULTILINE)
    stable = "cp311-abi3" if sys.version_info >= (3, 11) else "cp310-cp310"
    assert tags and all(tag.startswith(stable + "-") for tag in tags)
    # With an older Python, pip says so instead of trying to build it.
    assert distribution.metadata["Requires-Python"] == ">=3.10"


def test_pb233_nothing_of_protobuf_is_needed_or_shared(distribution):
    assert not distribution.requires
    done = subprocess.run(
        [sys.executable, "-c", "import sys, geminga, geminga.asyncio; print([m for m in sys.modules if 'protobuf' in m])"],
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_version_is_the_distribution_s(distribution):
    assert distribution.version == geminga.__version__
