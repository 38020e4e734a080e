"""Gymnasium ids of the form "module:Env-v0": making one imports the module, which is done on request only."""


def check_id(name: str, value: str, *, import_module: bool, otherwise: str) -> None:
    """Refuse an id that would import a module, unless that is requested.

    Args:
        name: of the argument, for the sentence.
        value: the id.
        import_module: whether that was requested.
        otherwise: how it can be, for the sentence.

    Raises:
        ValueError: the id names a module, and that was not requested.
    """
    module, colon, _ = value.partition(":")
    if colon and not import_module:
        raise ValueError(
            f"{name} is {value!r}, which would import the module {module!r}, expected a registered id, or {otherwise}"
        )
