"""Exit status of a check by its outcome: of the command, and as `exit_code` in the report; and of `advise` on a program
that did not come to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

ExitCode: TypeAlias = Literal[0, 1, 2]

PASSED: ExitCode = 0
FAILED: ExitCode = 1
UNMEASURED: ExitCode = 2

INCOMPLETE = 3
"""Of `advise`: the program's step ended in an error, and what it ran until then was advised on."""

BY_OUTCOME: Mapping[str, ExitCode] = {"passed": PASSED, "failed": FAILED, "unmeasured": UNMEASURED}
