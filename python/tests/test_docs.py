"""The pages of docs/python: every block of Python runs, and prints what the page says it prints."""

import doctest
import enum
import html
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import geminga
import pytest
from geminga.not_yet import NotYet
from geminga.testing import EmbeddedBroker

PAGES = Path(__file__).parents[2] / "docs" / "python"

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def sections(page):
    """The page's sections: in the FAQ each stands alone, the tutorial is one."""
    text = (PAGES / page).read_text()
    return [text] if page == "tutorial.md" else text.split("\n## ")


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker() as broker:
        yield broker


def run(text, broker, capsys, scope):
    blocks = BLOCK.findall(text)
    for source, expected in blocks:
        source = source.replace("pulsar://localhost:6650", broker.service_url)
        source = source.replace("http://localhost:8080", broker.admin_url)
        capsys.readouterr()
        exec(compile(source, "a block of the page", "exec"), scope)
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == (expected, ""), source
    return len(blocks)


def test_the_tutorial_runs(broker, capsys):
    assert run(sections("tutorial.md")[0], broker, capsys, {}) > 10


@pytest.mark.parametrize("text", sections("faq.md")[1:], ids=lambda text: text.splitlines()[0])
def test_an_answer_runs(broker, capsys, text):
    with geminga.Client(broker.service_url) as client:
        assert run(text, broker, capsys, {"geminga": geminga, "client": client}) == 1


@pytest.mark.parametrize(
    "module",
    ["geminga", "geminga.asyncio", "geminga.authentication", "geminga.client", "geminga.enums", "geminga.exceptions",
     "geminga.loggers", "geminga.policies", "geminga.schema", "geminga.testing", "pulsar", "_pulsar"],
)
def test_examples_in_docstrings_are_true(broker, module):
    module = pytest.importorskip(module)
    with geminga.Client(broker.service_url) as client:
        names = {"client": client, "service_url": broker.service_url}
        failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS, extraglobs=names)
    assert failed == 0 and tried > 0


def public_classes():
    for module in (geminga, geminga.schema, importlib.import_module("geminga.testing")):
        for name in module.__all__:
            found = getattr(module, name, None)
            if inspect.isclass(found) and not issubclass(found, (Exception, enum.Enum, NotYet)):
                yield found


@pytest.mark.parametrize("found", sorted(set(public_classes()), key=lambda found: found.__name__))
def test_every_public_class_and_member_is_documented_with_an_example(found):
    refuses = "not in this version" in found.__doc__
    assert ">>>" in found.__doc__ or refuses or ">>>" in inspect.getdoc(inspect.getmodule(found))
    for name, member in vars(found).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{found.__name__}.{name}"


def test_every_member_of_asyncio_is_documented():
    module = importlib.import_module("geminga.asyncio")
    for found in (module.Client, module.Producer, module.Consumer, module.Reader):
        for name in (name for name in dir(found) if not name.startswith("_")):
            assert inspect.getdoc(getattr(found, name)), f"{found.__name__}.{name}"


def test_the_reference_has_every_public_name_with_its_types(tmp_path):
    pytest.importorskip("pdoc", reason="the API reference is built where pdoc is installed")
    script = [sys.executable, "-W", "error", str(PAGES / "reference.py"), str(tmp_path)]
    built = subprocess.run(script, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    for name in ("geminga", "geminga.asyncio", "geminga.exceptions", "geminga.testing"):
        page = (tmp_path / (name.replace(".", "/") + ".html")).read_text()
        module = importlib.import_module(name)
        names = set(module.__all__) - {"exceptions", "schema"}
        assert not [public for public in names if f'id="{public}"' not in page]
    text = html.unescape(re.sub("<[^>]*>", "", (tmp_path / "geminga.html").read_text()))
    assert "def receive(self, timeout_millis: int | None = None)" in re.sub(r"\s+", " ", text)
