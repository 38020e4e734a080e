"""From a log to a recommendation: one half chooses a policy, the other judges it, checks run before it is believed."""

import lazy_loader

# Listed in __init__.pyi, loaded when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
