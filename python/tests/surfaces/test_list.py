"""The list of cases and this runner, side by side."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
CASES = HERE.parents[2] / "tests/surfaces/cases.tsv"


def test_every_case_of_the_list_has_its_test_and_every_test_its_case():
    rows = [row.split("\t") for row in CASES.read_text().splitlines() if not row.startswith("#")]
    listed = {(group, case) for group, case, _, without, _ in rows if "python" not in without.split(", ")}
    ours = set()
    for path in HERE.glob("test_*.py"):
        if path.name == Path(__file__).name:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                ours.add((path.stem.removeprefix("test_"), node.name.removeprefix("test_")))
    assert ours == listed
