"""Environments of the papers as arrays, Gymnasium's transition tables in, logs in (CSV, Parquet, DataFrame)."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
