"""Runs cases against a target, one after the other, and judges the whole."""

from collections.abc import Callable, Iterable, Sequence

import httpx2

from cloud.conformance.case import CASES, Case, Findings, GiveUp, NotOffered, Result, Verdict
from cloud.conformance.cases import answers, callers, errors, models, sampling, stops, streams, tools
from cloud.conformance.schemas.judge import Level
from cloud.conformance.target import Target

MODULES = (models, answers, streams, stops, sampling, tools, errors, callers)
"""Importing them fills the list of cases; this is the order in which they are shown."""


def chosen(patterns: Sequence[str] = ()) -> list[Case]:
    """The cases whose names begin with one of `patterns`; all when there are none."""
    order = [module.__name__ for module in MODULES]
    cases = sorted(CASES.values(), key=lambda case: order.index(case.run.__module__))
    return [case for case in cases if not patterns or case.name.startswith(tuple(patterns))]


async def run_case(case: Case, target: Target) -> Result:
    """A server that hangs, hangs up, or answers with what a case cannot read fails it; the suite goes on."""
    see = Findings()
    try:
        await case.run(target, see)
    except NotOffered as reason:
        if not see.faults:
            return Result(case.name, case.rule, Verdict.ABSENT, Verdict.ABSENT, f"not offered: {reason}")
    except GiveUp:
        pass
    except TimeoutError:
        see.must(False, f"no whole answer within {target.timeout_s:g} s")
    except httpx2.HTTPError as error:
        see.must(False, f"no answer: {type(error).__name__} {error}".strip())
    except (TypeError, AttributeError, ValueError, LookupError) as error:
        see.must(False, f"an answer has a form that cannot be read ({type(error).__name__}: {error})")
    return see.result(case.name, case.rule)


async def run(
    target: Target, cases: Iterable[Case], done: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """All results in order; `done` is told each as it comes."""
    results = []
    for case in cases:
        results.append(await run_case(case, target))
        done(results[-1])
    return results


def failed(results: Iterable[Result], level: Level) -> list[Result]:
    """Those that fail at this level."""
    return [result for result in results if getattr(result, level) is Verdict.FAIL]
