"""Names of the existing client that this version cannot serve: each says so when it is used."""


def _missing(name, what):
    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"{name}: {what} not supported by this version of geminga")

    return type(name, (), {"__init__": __init__, "__doc__": f"Not in this version: {what} not supported.", "__module__": __name__})


AutoClusterFailover = _missing("AutoClusterFailover", "failover between clusters is")
CryptoKeyReader = _missing("CryptoKeyReader", "end-to-end encryption is")
MessageBatch = _missing("MessageBatch", "taking a raw batch apart is")
ServiceInfo = _missing("ServiceInfo", "changing the service URL of a running client is")
ServiceInfoProvider = _missing("ServiceInfoProvider", "changing the service URL of a running client is")
TableView = _missing("TableView", "table views are")
