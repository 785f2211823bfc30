"""Conformance tests for adapters, for pytest. The test class of an adapter inherits them.

from postroom.conformance.receive_adapters import ReceiveAdapterConformance
from postroom.conformance.send_adapters import DeliveringAdapterConformance
"""

from __future__ import annotations

import pytest

# Failed assertions show their values, as in the modules of tests.
pytest.register_assert_rewrite("postroom.conformance.receive_adapters", "postroom.conformance.send_adapters")
