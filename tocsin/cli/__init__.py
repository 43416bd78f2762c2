"""`tocsin ...`. Nothing is imported here before a command asks for it, so that each starts fast."""


def main() -> None:
    """The console script."""
    from tocsin.cli.app import run

    run()
