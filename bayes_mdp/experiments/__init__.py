"""Experiments: run agents in environments, keep and draw what came out."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used. No file here has the name of what is listed: Python would bind the
# module in its place.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
