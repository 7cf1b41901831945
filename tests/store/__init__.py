"""Tests of the store. The contract suite gets pytest's assertion messages, like a test module."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.store.contract")
