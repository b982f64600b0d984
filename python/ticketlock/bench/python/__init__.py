"""The driver `python`: locks as Python threads use them."""

from .engine import PythonEngine

__all__ = ["PythonEngine"]
