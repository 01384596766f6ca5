"""Prints what pulsar-client has, module by module: `python read_off.py > pulsar_client_modules.tsv`, where it is installed."""

import importlib
import inspect
from importlib import metadata

MODULES = """pulsar pulsar.__about__ pulsar.asyncio pulsar.exceptions pulsar.schema pulsar.schema.definition pulsar.schema.schema
pulsar.schema.schema_avro pulsar.schema.schema_protobuf pulsar.tableview pulsar.functions pulsar.functions.context
pulsar.functions.function pulsar.functions.serde _pulsar""".split()


def kind(value):
    if inspect.ismodule(value):
        return "module"
    if not inspect.isclass(value):
        return "value"
    if issubclass(value, Exception):
        return "exception"
    return "enum" if hasattr(value, "__members__") else "class"


def main():
    print(f"# What PyPI pulsar-client {metadata.version('pulsar-client')} has: module, name, kind. Written by read_off.py.")
    for module in map(importlib.import_module, MODULES):
        for name, value in sorted(vars(module).items()):
            ours = getattr(value, "__module__", getattr(value, "__name__", "")).split(".")[0] in ("pulsar", "_pulsar")
            if (ours and not name.startswith("_") and kind(value) != "value") or name == "__version__":
                print(module.__name__, name, kind(value), sep="\t")
            if module.__name__ == "pulsar.asyncio" and ours and kind(value) == "class":
                for member in (member for member in vars(value) if not member.startswith("_")):
                    print(module.__name__, f"{name}.{member}", "method", sep="\t")


if __name__ == "__main__":
    main()
