"""The names, keywords, defaults and values of the existing client."""

import inspect
import re
from pathlib import Path

import geminga
import pytest
from geminga.not_yet import NotYet

HERE = Path(__file__).parent

#: Modules that are imported by name; the distribution in `compat/` has them.
MODULES = {"functions", "tableview", "__about__"}


def rows(name):
    lines = (HERE / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def is_wanted(dotted):
    _, name, *member = dotted.split(".")
    if name in MODULES:
        return False
    # Classes that are there only to say that they can't be used have no members.
    found = getattr(geminga, name, None)
    return not (member and isinstance(found, type) and issubclass(found, NotYet))


NAMES = [row for row in rows("pulsar_client_names.tsv") if is_wanted(row[0]) and row[0] != "pulsar.asyncio"]


def find(dotted):
    found = geminga
    for part in dotted.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", NAMES, ids=lambda row: row[0])
def test_every_name_of_the_existing_client_is_here(row):
    assert find(row[0]) is not None


@pytest.mark.parametrize(
    "row",
    [r for r in NAMES if re.match(r"pulsar\.(Client|Producer|Consumer|Reader)\.", r[0]) and "(" in (r[2:] or [""])[0]],
    ids=lambda row: row[0],
)
def test_keywords_and_defaults_are_those_of_the_existing_client(row):
    name, _, signature = row
    found = inspect.signature(find(name)).parameters
    expected = re.sub(r"\s*->.*$", "", signature)
    # Types are not compared: `name: type = default` becomes `name=default`.
    names = re.findall(r"(\w+)(?::[^=,()]*(?:\[[^=]*?\])*)?(?=[=,)])", expected)
    assert [n for n in names if n in found] == list(found), signature
    for parameter, default in re.findall(r"(\w+)=(-?\d+|None|True|False|'[^']*')", expected):
        if parameter in found:
            assert repr(found[parameter].default) == default, parameter
    for parameter, enum, member in re.findall(r"(\w+): _pulsar\.\w+ = _pulsar\.(\w+)\.(\w+)", expected):
        assert found[parameter].default is getattr(getattr(geminga, enum), member), parameter


@pytest.mark.parametrize("row", rows("pulsar_client_enums.tsv"), ids=lambda row: row[0])
def test_enum_values_are_those_of_the_existing_client(row):
    enum, member = row[0].split(".")
    found = getattr(getattr(geminga, enum), member)
    assert (found.value, found.name, str(found)) == (int(row[1]), member, row[0])


def test_every_public_name_has_a_docstring():
    without = []
    for name in geminga.__all__:
        found = getattr(geminga, name)
        members = vars(found).items() if inspect.isclass(found) else ()
        for member, value in [(None, found), *members]:
            public = member is None or not member.startswith("_")
            if public and (callable(value) or isinstance(value, property)) and not inspect.getdoc(value):
                without.append(f"{name}.{member}" if member else name)
    assert not without
