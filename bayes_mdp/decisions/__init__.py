"""Decisions under a posterior: policies and their values, what is optimal and how sure that is, what data are worth."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
