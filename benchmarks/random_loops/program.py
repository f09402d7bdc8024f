"""Random training loops: one seed is one program, with 10 to 20 statements in its loop."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass, field

from random_loops.batches import TOKENS, batches, drawn
from random_loops.losses import BACKWARDS, LOSSES, OPTIMIZERS, SCHEDULES, STEPS, ZERO, Loss
from random_loops.models import FEATURES, HIDDEN, MODELS, WINDOWS, Model, mlp
from random_loops.pieces import AFTER, BATCH, GRADIENTS, LATE, LOSS, OUT, PARTS, Piece
from random_loops.styles import Parts, text_of

DRAWING = 0.15  # of the programs draw random numbers on the device
FEWEST, MOST = 11, 20  # statements of a round

# The parts of a round in their order, and from what pieces the random ones are, and how often.
STAGES = (
    "first", "begin", "batch", "forward", "out", "losses", "parts", "total", "loss", "zero",
    "backward", "gradients", "step", "end", "after", "last",
)  # fmt: skip
POOLS = {"batch": (BATCH, 3), "out": (OUT, 5), "parts": (PARTS, 5), "loss": (LOSS + LATE, 4),
         "gradients": (GRADIENTS, 2), "after": (AFTER, 4)}  # fmt: skip
_CLOSURE = """def closure():
    optimizer.zero_grad()
    again = F.cross_entropy(CALL(x), y)
    again.backward()
    return again

loss = optimizer.step(closure)"""
_PARTS_OF_BATCH = """for part, labels in zip(x.chunk(3), y.chunk(3)):
    (0.1 * F.cross_entropy(CALL(part), labels)).backward()"""
_UPDATE = ("gradients", "step", "end")  # what accumulation does in some rounds alone


@dataclass(frozen=True)
class Program:
    text: str
    draws: bool  # random numbers on the device, which are not those of the CPU


@dataclass
class Draft:
    """A program while it is put together."""

    chance: random.Random
    draws: bool
    model: Model
    call: str  # the model's output alone, with {} for its input
    loss: Loss
    definitions: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    head: str = ""
    round: dict[str, list[tuple[Piece, str]]] = field(default_factory=dict)
    update_every: int = 1

    def filled(self, text: str) -> str:
        """The text, with random numbers in it."""
        chance = self.chance
        values = {
            "f": lambda: str(round(chance.uniform(0.3, 1.6), 2)),
            "s": lambda: str(round(chance.uniform(0.01, 0.3), 2)),
            "c": lambda: str(chance.randrange(4)),
            "r": lambda: str(chance.randrange(6)),
            "when": lambda: f"step % {chance.choice((2, 3))} == 1",
        }
        text = re.sub(r"CALL\(([^()]*)\)", lambda found: self.call.format(found[1]), text)
        return re.sub(r"\$(\w+)", lambda found: values[found[1]](), text)

    def put(self, stage: str, piece: Piece | str) -> None:
        """Add a piece to a part of the round, and its set-up before the loop."""
        piece = Piece(piece) if isinstance(piece, str) else piece
        if piece.text:
            self.round.setdefault(stage, []).append((piece, self.filled(piece.text)))
        self.set_up(piece.setup)
        self.final += [piece.final] if piece.final else []

    def set_up(self, text: str) -> None:
        probe = f"probe = {drawn(self.model.batch)}.to(device)"
        lines = [probe if line == "PROBE" else line for line in text.split("\n") if line]
        self.setup += [line for line in lines if line not in self.setup]

    def fits(self, piece: Piece) -> bool:
        """Whether it can be added."""
        names = {line.partition(" ")[0] for line in self.setup}
        used = {other.text for pieces in self.round.values() for other, _ in pieces}
        return (
            piece.text not in used
            and (not piece.draws or self.draws)
            and (not piece.floats or self.model.batch != TOKENS)
            and (not piece.module or self.model.is_module)
            # cuDNN raises there, too: no gradient of a GRU's or an LSTM's gradient
            and ("create_graph" not in piece.text or self.model.batch != WINDOWS)
            and (not piece.parts or piece.parts == self.loss.parts)
            and (piece.setup in self.setup or piece.setup.partition(" ")[0] not in names)
        )

    def size(self) -> int:
        """The number of statements in a round, those in blocks too."""
        texts = [text for pieces in self.round.values() for _, text in pieces]
        return sum(isinstance(n, ast.stmt) for text in texts for n in ast.walk(ast.parse(text)))

    def statements(self) -> list[ast.stmt]:
        """Those of a round in their order, without writes to what is saved for a gradient."""
        found: list[ast.stmt] = []
        update: list[ast.stmt] = []
        saved = False
        for stage in STAGES:
            for piece, text in self.round.get(stage, []):
                if piece.writes and saved:
                    continue
                saved = (saved or piece.saves) and not piece.renews
                (update if stage in _UPDATE else found).extend(ast.parse(text).body)
            if stage == _UPDATE[-1]:
                found += self._updating(update)
        return found

    def _updating(self, update: list[ast.stmt]) -> list[ast.stmt]:
        if self.update_every == 1:
            return update
        [condition] = ast.parse(f"if (step + 1) % {self.update_every} == 0:\n    pass").body
        assert isinstance(condition, ast.If)
        condition.body = update
        return [condition]


def program(seed: int) -> Program:
    """The program of that seed."""
    chance = random.Random(seed)
    draft = _draft(chance, chance.random() < DRAWING)
    batch = chance.choice(batches(draft.model.batch, chance))
    draft.head = batch.head
    draft.definitions += [batch.definition] if batch.definition else []
    draft.put("first", draft.model.first)
    draft.put("batch", Piece(batch.text, batch.setup))
    draft.put("forward", chance.choice(draft.model.forward))
    draft.put("losses", Piece(draft.loss.text, draft.loss.setup, saves=draft.loss.saves))
    draft.put("total", draft.loss.total)
    _add_ending(draft)
    wanted = chance.randint(FEWEST, MOST)
    stages = [stage for stage, (_, weight) in POOLS.items() for _ in range(weight)]
    for _ in range(60):
        if draft.size() >= wanted:
            break
        stage = chance.choice(stages)
        piece = chance.choice(POOLS[stage][0])
        if draft.fits(piece):
            draft.put(stage, piece)
    if chance.random() < 0.1:
        draft.put("last", "del loss, out")
    body = draft.statements()
    before = sum(len(draft.round.get(stage, ())) for stage in ("first", "begin")) + len(
        ast.parse(batch.text).body
    )
    parts = Parts(draft.definitions, draft.setup, draft.head, body, draft.final)
    return Program(text_of(chance, seed, parts, before), draft.draws)


def _draft(chance: random.Random, draws: bool) -> Draft:
    """With a model and a form of its loss."""
    loss = chance.choice([*LOSSES, *(loss for loss in LOSSES if loss.parts)])
    name = chance.choice([*(n for n in MODELS if draws or not MODELS[n].draws), *["mlp"] * 5])
    if name == "mlp":
        hidden = chance.sample(HIDDEN, chance.randint(1, 4))
        result, call, forward = chance.choice([
            ("self.head(h)", "model({})", "out = model(x)"),
            ("self.head(h)", "model.forward({})", "out = model.forward(x)"),
            ('{"out": self.head(h), "h": h}', 'model({})["out"]', 'out = model(x)["out"]'),
            ("(self.head(h), h)", "model({})[0]", "out, features = model(x)"),
        ])  # fmt: skip
        model = Model(mlp(hidden, result), "model = Net().to(device)", FEATURES, (forward,))
    else:
        model = MODELS[name]
        call = "model({})" if model.is_module else "forward(weights, {})"
        call += "[0]" if model.forward[0].startswith("out,") else ""
    draft = Draft(chance, draws, model, call, loss, [model.definition] if model.definition else [])
    draft.set_up(f"{model.setup}\nparams = {model.parameters}")
    return draft


def _add_ending(draft: Draft) -> None:
    """How gradients are zeroed and computed, and what the optimizer does."""
    chance = draft.chance
    zero, backward, step = chance.choice(ZERO), chance.choice(BACKWARDS), chance.choice(STEPS)
    where = chance.choice(["begin", "zero", "zero", "end", "end"])
    made = [chance.choice(OPTIMIZERS) for _ in range(2)]
    has_two = chance.random() < 0.15
    draft.set_up(f"optimizer = {made[0].format('params[:1]' if has_two else 'params')}")
    if has_two:
        draft.set_up(f"other = {made[1].format('params[1:]')}")
        zero = "for each in (optimizer, other):\n    each.zero_grad()"
        step = "optimizer.step()\nother.step()"
    elif chance.random() < 0.08:
        step = _CLOSURE
    elif chance.random() < 0.06:
        draft.set_up('scaler = torch.amp.GradScaler("cuda", enabled=False)')
        backward, step = "scaler.scale(loss).backward()", "scaler.step(optimizer)\nscaler.update()"
    elif chance.random() < 0.08:
        draft.set_up("warmup = Warmup(optimizer)")
        step = "warmup.step()"
    if "velocity" in step:
        draft.set_up("velocity = [torch.zeros_like(p) for p in params]")
    if where == "end" and chance.random() < 0.4:
        draft.update_every = chance.choice([2, 3])
    if chance.random() < 0.15:
        draft.put(
            "begin", 'for group in optimizer.param_groups:\n    group["lr"] = 0.05 / (2 + step)'
        )
    draft.put(where, zero)
    draft.put("backward", backward)
    if draft.model.any_size and chance.random() < 0.15:
        draft.put("backward", _PARTS_OF_BATCH)
    draft.put("step", step)
    if chance.random() < 0.3:
        draft.set_up(f"scheduler = {chance.choice(SCHEDULES).format('optimizer')}")
        draft.put("after", "scheduler.step()")
