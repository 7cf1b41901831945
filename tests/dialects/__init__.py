"""Tests of the wire forms."""

import pytest

# The contract is no test file by its name; its asserts should tell as much as if it were.
pytest.register_assert_rewrite("tests.dialects.contract")
