"""What is asked of every dialect, and what of some."""

from agentstate.dialects import DIALECTS, dialect_for_path
from agentstate.dialects.base import CallsTools, calls_tools


def test_a_dialect_calls_tools_by_one_method_or_by_all_of_them() -> None:
    bound = dialect_for_path("/v1beta/models/m:streamGenerateContent", "alt=sse")
    assert bound is not None
    answers = {each.name: calls_tools(each) for each in (*DIALECTS, bound)}
    assert answers == {each.name: isinstance(each, CallsTools) for each in (*DIALECTS, bound)}
    assert set(answers.values()) == {True, False}
