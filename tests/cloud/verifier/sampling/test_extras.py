"""Parameters that come as extra arguments: read when well formed, absent otherwise."""

from typing import Any

import pytest

from cloud.verifier.sampling.extras import Extras, extras_of
from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG


def test_min_p_and_bias_are_read() -> None:
    """A flat list of id, bias, id, bias: extra arguments hold no maps."""
    assert extras_of({MIN_P_ARG: 0.1, LOGIT_BIAS_ARG: [5, -1.5, 7.0, 2]}) == Extras(0.1, {5: -1.5, 7: 2.0})
    assert extras_of({"other": 1}) == extras_of(None) == Extras()


@pytest.mark.parametrize(
    "malformed",
    [
        {LOGIT_BIAS_ARG: ["a", "b"]},
        {LOGIT_BIAS_ARG: [5, "x"]},
        {LOGIT_BIAS_ARG: [float("inf"), 1.0]},
        {LOGIT_BIAS_ARG: [float("nan"), 1.0]},
        {LOGIT_BIAS_ARG: [5, float("nan")]},
        {LOGIT_BIAS_ARG: [5, 10**400]},
        {LOGIT_BIAS_ARG: [[5], 1.0]},
        {LOGIT_BIAS_ARG: [5]},
        {LOGIT_BIAS_ARG: "5,1"},
        {MIN_P_ARG: "0.1"},
        {MIN_P_ARG: 10**400},
        {MIN_P_ARG: 1.5},
        {MIN_P_ARG: -0.1},
        {MIN_P_ARG: float("nan")},
    ],
)
def test_what_is_malformed_counts_as_absent(malformed: dict[str, Any]) -> None:
    """It is read inside the engine, where an error would end every request."""
    assert extras_of(malformed) == Extras()
