"""What holds for every test: `--long`, and that CI skips nothing it was given the means for.

On a developer's machine a test that needs a browser or a client that is not installed skips. In CI
(the environment has CI) the same test fails: there a skip would hide that it never ran.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

MUST_RUN_IN_CI = ("browser", "clients")

# The tests start over a thousand processes: one that compiles all it imports anew needs three times
# as long to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A figure of one example is a figure of the machine, which may be busy: times are for benchmarks.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long` as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="only with --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_long = item.get_closest_marker("long") and not item.config.getoption("--long")
    must_run = any(item.get_closest_marker(name) for name in MUST_RUN_IN_CI) and not is_long
    is_skip = report.skipped and not hasattr(report, "wasxfail")  # pytest reports xfail so too
    if is_skip and must_run and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where what it needs must be there: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped" and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"a whole file skipped in CI: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr
    return where[2] if isinstance(where, tuple) else str(where)
