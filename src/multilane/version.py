"""The version of the package, where every layer may read it.

Thread: any (a value).
"""

__version__ = "0.1.0"
