"""What tokens cost, and what an answer comes to: at the end, and at worst, before any work."""

from dataclasses import dataclass

from cloud.api.accounts.money import Nano, Pico

_PICO_PER_NANO = 1000
_NOTHING = Pico(0)


@dataclass(frozen=True, slots=True)
class Price:
    """Pico-dollars for one token; `cached` for a prompt token that the engine did not have to compute."""

    prompt: Pico = _NOTHING
    cached: Pico = _NOTHING
    completion: Pico = _NOTHING

    def cost(self, prompt: int, cached: int, completion: int) -> Nano:
        """Of an answer, in tokens; `cached` of the `prompt` tokens came from the cache. Halves are rounded up."""
        fresh = max(prompt - cached, 0)
        exact = fresh * self.prompt + (prompt - fresh) * self.cached + completion * self.completion
        return Nano((exact + _PICO_PER_NANO // 2) // _PICO_PER_NANO)

    def worst(self, bounds: "Bounds") -> Nano:
        """The most that an answer within `bounds` can cost."""
        dear = max(self.prompt, self.cached)
        prompt, completion = bounds.prompt, bounds.completion
        if bounds.context is not None:
            prompt, completion = min(prompt, bounds.context), min(completion, bounds.context)
            if (excess := prompt + completion - bounds.context) > 0:
                # Together they fit the context: the cheaper of the two gives way.
                if bounds.choices * self.completion >= dear:
                    prompt -= excess
                else:
                    completion -= excess
        exact = prompt * dear + bounds.choices * completion * self.completion
        return Nano(-(-exact // _PICO_PER_NANO))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most tokens that a request can take: its prompt, the output of each choice, and both in one context."""

    prompt: int
    completion: int
    choices: int
    context: int | None


FREE = Price()
