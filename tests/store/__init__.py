"""Tests of the store. The contract suites get pytest's assertion messages, like a test module."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.store.contract", "tests.store.contract_gate")
