"""Passages made by the machine, and a question whose answer takes several of them: the same for a number every time.

With hops = 3, Mira is asked about: "Mira works for Sano." "Sano lives in Tolburg." "The gate of Tolburg is red." Rivals
say the same of others; what is left over says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random

from turnwise.errors import ConfigError

COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "grey")
FIRST = ("Mi", "Sa", "To", "Ke", "Lu", "Ba", "No", "Di", "Fe", "Ru", "Ga", "Vo", "He", "Ja", "Pi", "Ze")
SECOND = ("ra", "no", "li", "ta", "mo", "den", "ska", "vel", "ri", "na", "lo", "sun", "ko", "mer", "dis", "ba")
PEOPLE = tuple("".join(parts) for parts in product(FIRST, SECOND))
CITIES = tuple(f"{person}burg" for person in PEOPLE)
FILLER = (
    "It rained for most of the week.",
    "The market opens early in the morning.",
    "A small boat lies at the river.",
    "Nobody remembers who planted the old tree.",
    "The bread here is known for its taste.",
    "In winter the road is often closed.",
    "A dog sleeps beside the well.",
    "The bell rings twice a day.",
    "Many letters arrive late.",
    "There is a story about a lost coin.",
    "The bridge was built long ago.",
    "On Sundays there is music.",
)
"""Sentences that say nothing anybody asks about."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a task is; what each number means stands in Passages."""

    passages: int
    hops: int
    rivals: int
    sentences: int
    names: int
    colours: int

    @property
    def kind(self) -> str:
        """The sizes as part of a key: "40/2/20/5/100/8"."""
        return f"{self.passages}/{self.hops}/{self.rivals}/{self.sentences}/{self.names}/{self.colours}"


@dataclass(frozen=True, slots=True)
class World:
    """The passages in order, which of them are needed, and what is asked; `chain` are the needed facts."""

    passages: list[str]
    needed: list[int]
    chain: list[str]
    question: str
    answer: str


def check(shape: Shape) -> None:
    """Refuse sizes that no world has."""
    if shape.hops < 1 or shape.rivals < 0 or shape.sentences < 0:
        raise ConfigError(
            f"found hops {shape.hops}, rivals {shape.rivals}, sentences {shape.sentences}; expected hops of 1 or more, "
            "the others 0 or more"
        )
    if shape.passages < shape.hops + shape.rivals:
        raise ConfigError(
            f"found passages {shape.passages} for hops {shape.hops} and rivals {shape.rivals}; expected at least "
            f"{shape.hops + shape.rivals}, one for each"
        )
    if not 2 <= shape.colours <= len(COLOURS):
        raise ConfigError(f"found colours {shape.colours}; expected 2 to {len(COLOURS)}")
    if not shape.hops + shape.rivals <= shape.names <= len(PEOPLE):
        raise ConfigError(
            f"found names {shape.names} for hops {shape.hops} and rivals {shape.rivals}; expected "
            f"{shape.hops + shape.rivals} to {len(PEOPLE)}, so that nobody is spoken of twice"
        )


def make(number: int, shape: Shape) -> World:
    """The world of this number."""
    rng = Random(f"passages/{shape.kind}/{number}")
    people = rng.sample(PEOPLE[: shape.names], shape.hops + shape.rivals)
    cities = rng.sample(CITIES[: shape.names], shape.hops + shape.rivals)
    answer = rng.choice(COLOURS[: shape.colours])
    chain = _chain(people[: shape.hops], cities[0], answer)
    rivals = [_rival(rng, n, shape, people, cities) for n in range(shape.hops, shape.hops + shape.rivals)]
    facts = [*chain, *rivals, *[None] * (shape.passages - shape.hops - shape.rivals)]
    order = rng.sample(range(len(facts)), len(facts))
    return World(
        passages=[_passage(rng, facts[n], shape.sentences) for n in order],
        needed=[order.index(n) for n in range(shape.hops)],
        chain=chain,
        question=_question(people[0], shape.hops),
        answer=answer,
    )


def _chain(people: Sequence[str], city: str, colour: str) -> list[str]:
    """The facts that lead from the first of the people to a colour, one a hop."""
    if len(people) == 1:
        return [_gate(people[0], colour)]
    works = [f"{one} works for {other}." for one, other in pairwise(people[:-1])]
    return [*works, f"{people[-2]} lives in {city}.", _gate(city, colour)]


def _rival(rng: Random, n: int, shape: Shape, people: Sequence[str], cities: Sequence[str]) -> str:
    """A fact of one of the kinds in the chain, about somebody or somewhere that is not in it."""
    colour = rng.choice(COLOURS[: shape.colours])
    if shape.hops == 1:
        return _gate(people[n], colour)
    kinds = [_gate(cities[n], colour), f"{people[n]} lives in {rng.choice(cities)}."]
    kinds += [f"{people[n]} works for {rng.choice(people[:n])}."] if shape.hops > 2 else []
    return kinds[n % len(kinds)]


def _gate(owner: str, colour: str) -> str:
    return f"The gate of {owner} is {colour}."


def _passage(rng: Random, fact: str | None, sentences: int) -> str:
    """Filler with the fact somewhere among it; a passage without a fact has one filler more."""
    said = [rng.choice(FILLER) for _ in range(sentences + (fact is None))]
    if fact is not None:
        said.insert(rng.randint(0, sentences), fact)
    return " ".join(said)


def _question(person: str, hops: int) -> str:
    """The question about a person: "What colour is the gate of the city where the one that Mira works for lives?"."""
    if hops == 1:
        return f"What colour is the gate of {person}?"
    who = person
    for _ in range(hops - 2):
        who = f"the one that {who} works for"
    return f"What colour is the gate of the city where {who} lives?"
