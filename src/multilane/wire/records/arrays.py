"""The types of the arrays that records are read from and decoded into.

Thread: none (types).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Views = npt.NDArray[np.uint64]  # of binary values, two words each
