"""Exit status of a check by its outcome: of the command, and as `exit_code` in the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

ExitCode: TypeAlias = Literal[0, 1, 2]

PASSED: ExitCode = 0
FAILED: ExitCode = 1
UNMEASURED: ExitCode = 2

BY_OUTCOME: Mapping[str, ExitCode] = {"passed": PASSED, "failed": FAILED, "unmeasured": UNMEASURED}
