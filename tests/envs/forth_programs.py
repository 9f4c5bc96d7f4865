"""Random Forth programs that are well formed: every word finds its numbers, every branch leaves as many as its twin."""

from __future__ import annotations

from random import Random

from turnwise.envs.forth.words import PURE

SHIFTS = {"lshift", "rshift"}
EFFECTS = {name: tuple(len(side.split()) for side in effect.split("--")) for name, (effect, _, _) in PURE.items()} | {
    "?dup-if-drop": (1, 0)
}
PLAIN = [name for name in PURE if name not in SHIFTS]


class Writer:
    """Writes one program; `depth` is how many numbers the stack holds at the point reached."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.words: dict[str, tuple[int, int]] = {}
        self.cells: list[str] = []
        self.text: list[str] = []
        self.inside = False
        self.loops = 0

    def program(self) -> str:
        for n in range(self.rng.randint(0, 2)):
            self.text += [f"variable v{n}", self.number(), f"v{n}", "!"]
            self.cells.append(f"v{n}")
        for n in range(self.rng.randint(0, 3)):
            self.define(f"w{n}")
        depth = self.some(0, self.rng.randint(2, 12), nested=0)
        self.text += ["depth", ".", *(["."] * min(depth, self.rng.randint(0, 3)))]
        return " ".join(self.text)

    def define(self, name: str) -> None:
        """A word with a known effect, which later ones may use."""
        taken = self.rng.randint(0, 3)
        self.text += [":", name, "(", "what", "it", "does", ")"]
        self.inside = True
        if taken and self.rng.random() < 0.2:
            self.text += ["dup", "0>", "if", "dup", "100", "min", "nip", "1-", "recurse", "then"]
        left = self.some(taken, self.rng.randint(1, 8), nested=0)
        self.inside = False
        self.text.append(";")
        self.words[name] = (taken, left)

    def number(self) -> str:
        return str(self.rng.choice([0, 1, -1, 2, 3, 7, 10, -5, 64, 1000, self.rng.randint(-(10**6), 10**6)]))

    def some(self, depth: int, pieces: int, nested: int) -> int:
        for _ in range(pieces):
            depth = self.piece(depth, nested)
        return depth

    def level(self, depth: int, wanted: int) -> None:
        """Drop or add numbers until there are as many as wanted."""
        self.text += ["drop"] * (depth - wanted) + [self.number() for _ in range(wanted - depth)]

    def piece(self, depth: int, nested: int) -> int:
        kinds = ["number", "word", "word", "word", "print"]
        kinds += ["cell"] if self.cells else []
        kinds += ["own"] if self.words else []
        kinds += ["if", "times", "count", "while", "aside"] if self.inside and nested < 2 else []
        kinds += ["index"] if self.loops else []
        return int(getattr(self, f"_{self.rng.choice(kinds)}")(depth, nested))

    def _number(self, depth: int, nested: int) -> int:
        self.text.append(self.number())
        return depth + 1

    def _use(self, name: str, taken: int, left: int, depth: int) -> int:
        self.level(depth, max(depth, taken))
        self.text.append(name)
        return max(depth, taken) - taken + left

    def _word(self, depth: int, nested: int) -> int:
        if self.rng.random() < 0.08:
            self.text += [str(self.rng.randint(0, 63)), self.rng.choice(sorted(SHIFTS))] if depth else []
            return depth
        name = self.rng.choice(PLAIN)
        return self._use(name, *EFFECTS[name], depth)

    def _own(self, depth: int, nested: int) -> int:
        name = self.rng.choice(sorted(self.words))
        return self._use(name, *self.words[name], depth)

    def _print(self, depth: int, nested: int) -> int:
        what = self.rng.choice([".", "u.", '."', "emit", "cr", "space", "pick", "roll", ".s"])
        if what == '."':
            self.text.append('." so it is"')
        elif what == "emit":
            self.text += [str(self.rng.randint(65, 90)), "emit"]
        elif what in ("pick", "roll") and depth:
            self.text += [str(self.rng.randrange(depth)), what]
            return depth + (what == "pick")
        elif what in (".", "u.") and depth:
            self.text.append(what)
            return depth - 1
        elif what in ("cr", "space") or (what == ".s" and not self.inside):
            self.text.append(what)
        return depth

    def _cell(self, depth: int, nested: int) -> int:
        cell, what = self.rng.choice(self.cells), self.rng.choice(["@", "!", "+!", "?"])
        if what in ("!", "+!"):
            self.text += [self.number(), cell, what]
            return depth
        self.text += [cell, what]
        return depth + (what == "@")

    def _if(self, depth: int, nested: int) -> int:
        self.text += [self.number(), "if"]
        left = self.some(depth, self.rng.randint(0, 3), nested + 1)
        self.text.append("else")
        self.level(self.some(depth, self.rng.randint(0, 3), nested + 1), left)
        self.text.append("then")
        return left

    def _times(self, depth: int, nested: int) -> int:
        start, step = self.rng.randint(-3, 3), self.rng.choice([1, 1, 2, 3, -1, -2])
        limit = start + self.rng.randint(1, 5) * (1 if step > 0 else -1)
        self.text += [str(limit), str(start), self.rng.choice(["do", "?do"])]
        self.loops += 1
        if self.rng.random() < 0.3:
            self.text += ["i", str(self.rng.randint(-3, 5)), "=", "if", "leave", "then"]
        self.level(self.some(depth, self.rng.randint(1, 3), nested + 1), depth)
        self.loops -= 1
        self.text += ["loop"] if step == 1 else [str(step), "+loop"]
        return depth

    def _index(self, depth: int, nested: int) -> int:
        self.text.append("i" if self.loops == 1 else self.rng.choice("ij"))
        return depth + 1

    def _aside(self, depth: int, nested: int) -> int:
        """Put the top aside on the return stack, where no loop's index may be asked for."""
        if not depth or self.loops:
            return depth
        self.text.append(">r")
        left = self.some(depth - 1, self.rng.randint(0, 2), nested + 2)
        self.text += [self.rng.choice(["r@ drop r>", "r>"])]
        return left + 1

    def _count(self, depth: int, nested: int) -> int:
        return self._counter(depth, nested, "begin", "1- dup 0= until drop")

    def _while(self, depth: int, nested: int) -> int:
        return self._counter(depth, nested, "begin dup while", "1- repeat drop")

    def _counter(self, depth: int, nested: int, opening: str, closing: str) -> int:
        """A loop whose counter waits in a place of its own: on the stack, below what its body makes and drops."""
        self.text += [str(self.rng.randint(1, 4)), opening]
        made = self.some(0, self.rng.randint(0, 2), nested + 1) if not self.words else 0
        self.text += ["drop"] * made + [closing]
        return depth
