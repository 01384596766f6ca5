"""What people do with a Pulsar client: programs as they write them, run as they run them.

`programs/` holds them unchanged, with `import pulsar`: only the address of the broker is replaced before a run.
"""
