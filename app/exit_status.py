"""Exit status of a check by its outcome: of the command, and as `exit_code` in the report."""

from __future__ import annotations

PASSED, FAILED, UNMEASURED = 0, 1, 2

BY_OUTCOME = {"passed": PASSED, "failed": FAILED, "unmeasured": UNMEASURED}
