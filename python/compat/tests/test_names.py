"""Every name of pulsar-client can be imported from the module it was in, and is geminga's or says that it is not served."""

import importlib
import inspect
from importlib import metadata
from pathlib import Path

import geminga
import pytest
from geminga.not_yet import NotYet

LINES = (Path(__file__).parent / "pulsar_client_modules.tsv").read_text().splitlines()
ROWS = [tuple(line.split("\t")) for line in LINES if not line.startswith("#")]
#: What nobody imports: a module's own import of its package, and a metaclass.
ROWS.remove(("pulsar.asyncio", "pulsar", "module"))
ROWS.remove(("pulsar.schema.definition", "RecordMeta", "class"))


def find(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("module, name, kind", ROWS, ids=[f"{module}.{name}" for module, name, _ in ROWS])
def test_every_name_is_in_its_module(module, name, kind):
    found = find(module, name)
    if isinstance(found, type) and issubclass(found, NotYet):
        for use in (found, lambda: found.anything, lambda: type("Derived", (found,), {})):
            with pytest.raises(NotImplementedError, match="not supported by this version of geminga"):
                use()
        return
    if kind == "exception":
        assert issubclass(found, geminga.PulsarException)
    if kind == "enum":
        assert found is getattr(geminga, name) and list(found)
    if kind == "class":
        assert inspect.isclass(found)


def test_the_names_are_geminga_s():
    import _pulsar
    import pulsar
    import pulsar.asyncio

    for name in geminga.__all__:
        ours = getattr(geminga, name)
        if not inspect.ismodule(ours):
            assert getattr(pulsar, name, ours) is ours
            assert getattr(_pulsar, name, ours) is ours or issubclass(getattr(_pulsar, name), NotYet)
    assert pulsar.asyncio.Client is importlib.import_module("geminga.asyncio").Client
    with pytest.raises(pulsar.exceptions.InvalidUrl) as raised:
        geminga.Client("nowhere")
    assert isinstance(raised.value, _pulsar.InvalidUrl) and raised.value.error() == _pulsar.Result.InvalidUrl


def test_user_task_4_old_code_imports_from_the_private_extension():
    from _pulsar import ConsumerType, InitialPosition, Result

    import pulsar

    assert (ConsumerType, InitialPosition, Result) == (pulsar.ConsumerType, pulsar.InitialPosition, pulsar.Result)
    assert (ConsumerType.Shared, Result.Ok, InitialPosition.Earliest) == (1, 0, 1)


def test_user_task_3_a_timeout_is_caught_by_its_old_name(pulsar_url, topic):
    import _pulsar

    import pulsar

    client = pulsar.Client(pulsar_url)
    consumer = client.subscribe(topic, "s")
    with pytest.raises(_pulsar.Timeout) as raised:
        consumer.receive(timeout_millis=1)
    assert type(raised.value) is pulsar.Timeout
    client.close()


def test_the_star_of_schemas_gives_names_that_say_what_is_not_served():
    scope = {}
    exec("from pulsar.schema import *", scope)
    assert scope["StringSchema"]().encode("a") == b"a"
    with pytest.raises(NotImplementedError, match="typed records"):
        exec("class Order(Record):\n    amount = Integer()", scope)


def test_the_versions_go_together():
    import pulsar

    versions = {metadata.version("geminga"), metadata.version("geminga-compat"), geminga.__version__, pulsar.__version__}
    assert len(versions) == 1
    assert metadata.requires("geminga-compat") == [f"geminga=={geminga.__version__}"]
