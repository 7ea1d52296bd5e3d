"""These tests run kernels in Triton's interpreter, which must be asked for before Triton is imported.

`tests/kernels/test_interpreted.py` starts them in a process of their own; collected anywhere else they are left out.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["*test_*.py"]  # in folders below as well

if not collect_ignore_glob:
    from tests.kernels.interpreted.interpreter import speed_up

    speed_up()
