"""What of an answer, or of a request, a person or a rule must decide. Pure.

The counterpart is `gate.py`, which asks and waits. A finding is a call that the policy does not
simply allow; calls that the provider has run already are none, since nobody can be kept from them:
a request that offers such a tool is held before it goes upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentstate.dialects.base import Tool
from agentstate.ground.approvals import ApprovalKind, Place, Question, Then
from agentstate.ground.chat import Answer
from agentstate.ground.redaction import Redactor
from agentstate.steps.policy import TEXT_KIND, Policy, Verdict
from agentstate.steps.textcalls import find_calls


@dataclass(frozen=True, slots=True)
class Finding:
    """One call, or a request, with what the policy says of it."""

    kind: ApprovalKind
    choice: int
    position: int
    tool: str
    call_id: str | None
    arguments: str
    digest: bytes
    verdict: Verdict  # never "allow"

    @classmethod
    def of(cls, question: Question) -> Finding:
        """Return what was found when a question on record was asked."""
        return cls(
            kind=question.kind,
            choice=question.choice,
            position=question.position,
            tool=question.tool,
            call_id=question.call_id,
            arguments=question.arguments,
            digest=question.digest,
            verdict=Verdict("ask", question.rule, question.why),
        )

    @property
    def place(self) -> Place:
        """Where in its answer it stands."""
        return self.choice, self.position

    def without_keys(self, redactor: Redactor) -> Finding:
        """Return it without keys that are known. Its digest stays, so it is the same question."""
        return replace(self, arguments=redactor.text_without_keys(self.arguments))

    def question(
        self, deadline_ms: int | None, on_reject: Then, *, generation: int = 0, why: str = ""
    ) -> Question:
        """Return what a person is asked."""
        return Question(
            kind=self.kind,
            choice=self.choice,
            position=self.position,
            digest=self.digest,
            tool=self.tool,
            call_id=self.call_id,
            arguments=self.arguments,
            rule=self.verdict.rule,
            why=why or self.verdict.why,
            deadline_ms=deadline_ms,
            on_reject=on_reject,
            generation=generation,
        )


def find_guarded(policy: Policy, answer: Answer, *, scans_text: bool) -> tuple[Finding, ...]:
    """Return the calls of an answer that the policy asks about or denies, by choice and position.

    `scans_text`: the request names a guarded tool, so the answer's texts may spell a call of it.
    """
    found: list[Finding] = []
    for choice, call in answer.tool_calls:
        if call.runs_upstream:
            continue
        verdict = policy.judge(call.name, call.arguments, call.kind)
        if verdict.action != "allow":
            digest = policy.digest_of(call.name, call.arguments)
            found.append(
                Finding(
                    kind="tool_call",
                    choice=choice,
                    position=call.position,
                    tool=call.name,
                    call_id=call.call_id,
                    arguments=call.arguments,
                    digest=digest,
                    verdict=verdict,
                )
            )
    if scans_text:
        for one in answer.choices:
            found.extend(_find_in_text(policy, one.index, one.text))
    return tuple(found)


def _find_in_text(policy: Policy, choice: int, text: str) -> Iterable[Finding]:
    for call in find_calls(text, policy.could_spell):
        verdict = policy.judge(call.name, call.arguments, TEXT_KIND)
        if verdict.action != "allow":
            yield Finding(
                kind="text",
                choice=choice,
                position=call.position,
                tool=call.name,
                call_id=None,
                arguments=call.arguments,
                digest=policy.digest_of(call.name, call.arguments),
                verdict=verdict,
            )


def find_in_request(
    policy: Policy, tools: Iterable[Tool], *, digest: bytes, model: str, is_wanted: bool
) -> Finding | None:
    """Return why a request must be decided on before it goes upstream; None = it need not be.

    `is_wanted`: the caller asks for it. A tool that the provider runs by itself is judged by its
    name alone, since its arguments are known only when it has run. `digest` names the request.
    """
    guarded: list[tuple[str, Verdict]] = []
    for tool in tools:
        if not tool.runs_upstream or not policy.could_hold(tool.name, "function"):
            continue
        verdict = policy.judge(tool.name, "{}", "function")
        if verdict.action == "allow" and verdict.rule:
            continue  # whatever its arguments: a rule with a condition does not hold of none
        guarded.append((tool.name, verdict))
    # One question about all of them, since the request goes out whole or not at all.
    names = ", ".join(name for name, _ in guarded)
    for name, verdict in guarded:
        if verdict.action == "deny":
            return _request(digest, name, verdict)
    if guarded:
        rules = "; ".join(dict.fromkeys(each.rule for _, each in guarded if each.rule))
        why = "the provider runs this before anybody here sees the arguments"
        return _request(digest, names, Verdict("ask", rules or "a rule with a condition", why))
    if is_wanted:
        return _request(digest, model, Verdict("ask", "x-agent-require-approval", ""))
    return None


def _request(digest: bytes, tool: str, verdict: Verdict) -> Finding:
    return Finding(
        kind="request",
        choice=0,
        position=0,
        tool=tool,
        call_id=None,
        arguments="",
        digest=digest,
        verdict=verdict,
    )
