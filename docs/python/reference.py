"""Writes the API reference as HTML: `python reference.py FOLDER`, where geminga and pdoc are installed.

pdoc takes docstrings from the classes; their types are in stubs, which it has to be shown.
"""

import sys
import tempfile
from pathlib import Path

import geminga
import pdoc
from pdoc import doc_pyi

#: With those that `geminga` lists: its exceptions and schemas.
MODULES = ("geminga", "geminga.asyncio", "geminga.testing")

#: Where the types of a module are. Classes of the extension module are documented where programs import them from.
STUBS = {"geminga": "_geminga.pyi", "geminga.asyncio": "asyncio.pyi"}


def write(folder: Path) -> None:
    """Writes a page for each module into ``folder``."""
    package = Path(geminga.__file__).parent
    with tempfile.TemporaryDirectory() as temporary:

        def stub_of(module: str) -> "Path | None":
            if module not in STUBS:
                return None
            # pdoc runs it, and names in a stub are used before they are defined.
            text = "from __future__ import annotations\n" + (package / STUBS[module]).read_text()
            stub = Path(temporary) / STUBS[module]
            stub.write_text(text)
            return stub

        doc_pyi.find_stub_file = stub_of
        pdoc.render.configure(show_source=False, footer_text=f"geminga {geminga.__version__}")
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
