"""Is the OpenAPI true? schemathesis asks every route what its description allows, and what it does not."""

from __future__ import annotations

import schemathesis

schemathesis.checks.load_all_checks()
