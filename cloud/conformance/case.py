"""A case of the suite, what it says about a server, and the list of all cases."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from cloud.conformance.schemas.judge import Level, problems
from cloud.conformance.transcript import Fault

if TYPE_CHECKING:
    from cloud.conformance.target import Answer, Target


class Verdict(Enum):
    """`ABSENT`: the server says itself that it does not offer this, which breaks no rule."""

    PASS = "pass"
    FAIL = "fail"
    ABSENT = "absent"


class NotOffered(Exception):
    """Ends a case: the server does not offer what it is about."""


class GiveUp(Exception):
    """Ends a case that cannot go on; what is wrong has been noted."""


@dataclass(frozen=True)
class Result:
    """What a case says: both verdicts, and what was seen."""

    name: str
    rule: str
    strict: Verdict
    compatible: Verdict
    seen: str


@dataclass
class Findings:
    """What a case finds while it runs. Without a finding the server passes."""

    faults: list[tuple[Level, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def must(self, holds: object, otherwise: str) -> bool:
        """An unchanged client stumbles unless this holds."""
        if not holds:
            self.faults.append(("compatible", otherwise))
        return bool(holds)

    def strictly(self, holds: object, otherwise: str) -> bool:
        """The rule asks for this, though clients may not notice."""
        if not holds:
            self.faults.append(("strict", otherwise))
        return bool(holds)

    def need(self, holds: object, otherwise: str) -> None:
        """As `must`, and without it the case is over."""
        if not self.must(holds, otherwise):
            raise GiveUp

    def note(self, seen: str) -> None:
        """What is told about a server that passes."""
        self.notes.append(seen)

    def stream(self, faults: Iterable[Fault]) -> None:
        self.faults += [(fault.level, fault.text) for fault in faults]

    def schema(self, name: str, value: object) -> None:
        """Against a published schema, at both levels."""
        if strict := problems(name, value):
            loose = problems(name, value, "compatible")
            self.faults += [("compatible", each) for each in loose] or [("strict", each) for each in strict]

    def ok(self, answer: "Answer") -> "Answer":
        """The case needs an answer with status 200, which holds what was asked for."""
        self.need(answer.status == 200, f"status {answer.status} instead of 200: {answer.message()}")
        self.need(answer.answers(), f"an answer without {answer.asked}: {answer.text[:80]!r}")
        return answer

    def offered(self, answer: "Answer", *names: str) -> "Answer":
        """As `ok`, for what a server may refuse: an error that names one of the parameters `names` says that it is not
        offered, and so does a 404 for the whole of `/completions`."""
        if answer.status in (400, 404, 422, 501):
            told = f"{answer.param() or ''} {answer.message()}"
            if any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", told) for name in names):
                raise NotOffered(answer.message())
            if answer.status == 404 and names == ("completions",) and answer.code() != "model_not_found":
                raise NotOffered("404")
        return self.ok(answer)

    def error(
        self,
        answer: "Answer",
        status: int,
        *others: int,
        param: str | None = None,
        code: str | None = None,
        served: bool = False,
    ) -> None:
        """An error with `status`; clients can live with the `others`, and with a served request when `served`.
        It has the one shape and is discreet."""
        if answer.status < 400:
            told = f"status {answer.status} instead of {status}: {answer.text[:60]!r}"
            (self.strictly if served else self.must)(False, told)
            return
        self.must(answer.status in (status, *others), f"status {answer.status} instead of {status}")
        self.strictly(answer.status == status, f"status {answer.status} instead of {status}")
        if self.must(isinstance(answer.json, dict), f"the body of the error is no JSON object: {answer.text[:80]!r}"):
            self.schema("Error", answer.json)
        self.strictly(answer.type == "application/json", f"content type {answer.type!r}")
        self.strictly(param is None or answer.param() == param, f"`param` is {answer.param()!r} instead of {param!r}")
        said = answer.code()
        self.strictly(code is None or said == code, f"`code` is {said!r} instead of {code!r}")
        for word in ("Traceback", 'File "', ".py", "site-packages"):
            self.strictly(word not in answer.text, f"the error shows internals ({word})")
        retry = "retry-after" in answer.headers
        self.strictly(retry or answer.status not in (429, 503), f"{answer.status} without Retry-After")
        self.note(f"{answer.status} {answer.message()[:100]}")

    def result(self, name: str, rule: str) -> Result:
        levels = {level for level, _ in self.faults}
        compatible = Verdict.FAIL if "compatible" in levels else Verdict.PASS
        strict = Verdict.FAIL if levels else Verdict.PASS
        texts = dict.fromkeys(text for _, text in self.faults) or self.notes
        return Result(name, rule, strict, compatible, "; ".join(texts))


Run = Callable[["Target", Findings], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """One rule and how it is tried. The rule is the docstring of `run`."""

    name: str
    run: Run

    @property
    def rule(self) -> str:
        return " ".join((self.run.__doc__ or "").split())


CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Run], Run]:
    """Enters a function into the list; its docstring says the rule."""

    def enter(run: Run) -> Run:
        assert name not in CASES and run.__doc__, name
        CASES[name] = Case(name, run)
        return run

    return enter
