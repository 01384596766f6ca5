"""Whether ``pulsar-client`` is installed beside this distribution: both bring the module ``pulsar``."""

import warnings
from importlib import metadata, util
from pathlib import Path

_ADVICE = (
    "pulsar-client and geminga-compat are both installed, and both bring the module pulsar: "
    "`pip uninstall pulsar-client geminga-compat`, then install the one you want"
)


def check() -> None:
    """Warns when ``pulsar-client`` is installed too. Raises ImportError when the module ``pulsar`` is its."""
    try:
        metadata.distribution("pulsar-client")
    except metadata.PackageNotFoundError:
        return
    found = util.find_spec("pulsar")
    # Whichever was installed last has overwritten the other's file.
    if found is None or found.origin is None or "geminga" not in Path(found.origin).read_text(encoding="utf-8"):
        raise ImportError(_ADVICE)
    warnings.warn(_ADVICE, RuntimeWarning, stacklevel=3)
