"""How the local broker fails."""


class BrokerFailed(RuntimeError):
    """The local Kafka cannot do what was asked; the message says why and what to do."""
