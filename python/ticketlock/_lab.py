"""Machine facts, live delays and native benchmarks: the second module inside the shared library of `_core`.

Python looks for an extension module only under its own file name, so this file loads it from `_core`'s.
"""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader

from . import _core


def _load():
    # The loader calls the entry point that the last part of the name says: PyInit__lab or PyModExport__lab.
    loader = ExtensionFileLoader(__name__, _core.__file__)
    module = module_from_spec(spec_from_loader(__name__, loader, origin=_core.__file__))
    loader.exec_module(module)
    return module


_native = _load()
__all__ = list(_native.__all__)
globals().update({name: getattr(_native, name) for name in __all__})
