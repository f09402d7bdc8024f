"""Statements of random loops, by the place that they have in a round.

In a text, `$f` is a factor, `$s` a small number, `$c` a class, `$r` an example, and `$when` a
condition on the round. `x` and `y` are the batch, `out` the model's output, `params` its
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

_SAVING = ("out.abs(", "out.square(")


@dataclass(frozen=True)
class Piece:
    text: str
    setup: str = ""  # before the loop
    final: str = ""  # behind it
    writes: bool = False  # into `out`, which nothing may have saved for its gradient then
    renews: bool = False  # `out` is a new tensor afterwards, of a model's parameters
    floats: bool = False  # `x` has to be of numbers, not of words
    module: bool = False  # the model has to be one
    draws: bool = False  # random numbers on the device
    parts: str = ""  # the losses have to be in a dict, a list, or an object
    saves: bool = False  # `out`, for its gradient

    def __post_init__(self) -> None:
        if any(word in self.text for word in _SAVING):
            object.__setattr__(self, "saves", True)


def _of_numbers(*texts: str) -> list[Piece]:
    return [Piece(text, floats=True) for text in texts]


def _writing(*texts: str) -> list[Piece]:
    return [Piece(text, writes=True) for text in texts]


def _renewing(*texts: str) -> list[Piece]:
    return [Piece(text, renews=True) for text in texts]


BATCH = [
    *_of_numbers(
        "x = x + $s * torch.randn(x.shape).to(device)",
        "x[:, 0] *= $f",
        "x[$r] = 0",
        "x[1:3] += $s",
        "x *= 1 + 0.01 * step",
        "x = (x - x.mean(0)) / (x.std() + 0.1)",
        "x -= x.mean(0)",
        "x = x.flip(0)\ny = y.flip(0)",
        "order = torch.randperm(6)\nx, y = x[order], y[order]",
        "order = torch.randperm(6).to(device)\nx, y = x[order], y[order]",
        "order = np.random.permutation(6)\nx = x[order]\ny = y[order]",
        "lam = np.random.beta(0.4, 0.4)\nx = lam * x + (1 - lam) * x.flip(0)",
        "lam = random.uniform(0.5, 1.0)\nx = x * lam",
        "if random.random() < 0.5:\n    x, y = x.flip(0), y.flip(0)",
        "if np.random.rand() < 0.5:\n    x = -x",
        "mask = torch.rand(6) < 0.3\nx[mask.to(device)] = 0",
        "x = x.roll(step % 3, 0)\ny = y.roll(step % 3, 0)",
        "x = torch.where(x > $s, x, x * 0.5)",
        "noise = np.random.normal(size=tuple(x.shape))\n"
        "x = x + 0.1 * torch.from_numpy(noise).to(device)",
        'pair = {"x": x, "y": y}\npair["x"] = pair["x"] * $f\nx = pair["x"]',
        "first, second = x.chunk(2)\nx = torch.cat([second, first])\n"
        "y = torch.cat(y.chunk(2)[::-1])",
        "window = x[1:4]\nwindow.mul_($f)",
        "x.data.clamp_(-2, 2)",
        "scale = 1 + 0.1 * random.choice([-1, 0, 1])\nx.mul_(scale)",
        "x[random.randrange(6)] += $s",
    ),
    Piece("x = x * next(factors)", "factors = itertools.cycle([1.0, 0.9, 1.1])", floats=True),
    Piece("x = x + 0.1 * rng.random()", "rng = np.random.default_rng(3)", floats=True),
    Piece("y = (y + dice.randrange(4)) % 4", "dice = random.Random(5)"),
    Piece("x = x + $s * torch.randn(x.shape, generator=own).to(device)",
          "own = torch.Generator().manual_seed(4)", floats=True),
    Piece("seen += y.numel()", "seen = 0", "print(seen)"),
    Piece("labels.extend(y.tolist())", "labels = []", "print(sum(labels), len(labels))"),
    Piece("y[$r] = (step + 1) % 4"),
    Piece("counts[y] += 1", "counts = torch.zeros(4, device=device)", "print(counts.tolist())"),
    Piece("frequent += torch.bincount(y, minlength=4)",
          "frequent = torch.zeros(4, dtype=torch.long, device=device)"),
    Piece("hits.index_add_(0, y, torch.ones(6, device=device))",
          "hits = torch.zeros(4, device=device)", "print(hits.sum().item())"),
    Piece("if torch.rand(1).item() < 0.4:\n    y = (y + 1) % 4"),
    Piece("x = x + $s * torch.randn_like(x)", floats=True, draws=True),
    Piece("x = x * (torch.rand(6, device=device) > 0.2).view(-1, *[1] * (x.dim() - 1))",
          floats=True, draws=True),
    Piece("order = torch.randperm(6, device=device)\nx, y = x[order], y[order]", draws=True),
    Piece("keep = torch.bernoulli(torch.full((6,), 0.7, device=device))\ny = y * keep.long()",
          draws=True),
]  # fmt: skip

OUT = [
    *_writing(
        "out[:, 2:] += $f",
        "out[$r] *= $f",
        "out[:, $c] -= $s * step",
        "part = out[:, :2]\npart += $s",
        "part = out[2:]\npart *= $f",
        "flat = out.view(-1)\nflat[::2] -= $s",
        "turned = out.t()\nturned[$c] += $s * step",
        "out.transpose(0, 1)[1].mul_($f)",
        "grid = out.reshape(3, 2, 4)\ngrid[:, 0] += $s",
        "out[out.detach().abs() > 2] = 0",
        "out[torch.arange(6, device=device), y] += $s",
        "out.index_fill_(1, torch.tensor([$c], device=device), $s)",
        "out.scatter_add_(1, y[:, None], torch.full((6, 1), $s, device=device))",
        "with torch.no_grad():\n    out.clamp_(-4, 4)",
        "out.masked_fill_(y[:, None] == 0, $s)",
        "out.copy_(out.detach() * 0.5 + out * 0.5)",
        "out[:, $c].zero_()",
        "out.diagonal().add_($s)",
        "out.view(6, 2, 2)[:, 0].mul_($f)",
        "out.unsqueeze(0)[0, 1:] += $s",
        "h = out\nh += $s",
        "for c in range(4):\n    out[:, c] += $s * c",
        "out += np.random.rand()",
        "out[random.randrange(6)] *= $f",
        "out[step % 6:] += $s",
    ),
    Piece("out += next(shifts)", "shifts = (i / 10 for i in range(99))", writes=True),
    Piece("lately.rotate(1)\nout = out * lately[0]", "lately = collections.deque([1.0, 0.8, 1.2])",
          renews=True),
    Piece("visits += 1\nout = out * (1 + 0.01 * float(visits[0]))", "visits = np.zeros(1)",
          renews=True),
    Piece("out += biases[step % 3]", "biases = torch.linspace(-1, 1, 12).view(3, 4).cuda()",
          writes=True),
    Piece("out.mul_(temperature)\ntemperature *= 0.97", "temperature = 1.0", writes=True),
    Piece('box["out"] = out\nbox["out"] += $s', "box = {}", writes=True),
    Piece("kept.out = out\nkept.out *= $f", "kept = SimpleNamespace()", writes=True),
    Piece("outs[-1] = out\nouts[-1][:, 0] *= $f", "outs = [None]", writes=True),
    *_renewing(
        "out = out * $f",
        "out = out.clone()",
        "out = out + $s * torch.randn(6, 4).to(device)",
        "out = torch.cat([out[:3] * $f, out[3:]])",
        "out = out - out.mean(1, keepdim=True)",
        "out = torch.where(out > 0, out, $s * out)",
        "out = out * random.uniform(0.9, 1.1)",
        "out = out / (1 + 0.1 * step)",
        "if out.abs().max() > 2:\n    out = out * 0.5",
        "if $when:\n    out = out + $s",
        "for i in range(step % 3):\n    out = out + 0.1 * i",
        "out = torch.stack([row * $f for row in out])",
        "out = sum([out * 0.5, out.roll(1, 0) * 0.5])",
    ),
    Piece("out = out @ mixing", "mixing = (torch.eye(4) + 0.1).to(device)", renews=True),
    Piece("out = F.dropout(out, 0.3)", renews=True, draws=True),
    Piece("out = out + $s * torch.randn(6, 4, device=device)", renews=True, draws=True),
    Piece("history.append(out.detach())\nhistory = history[-3:]", "history = []"),
    Piece("latest = out.detach()", final="print(round(latest.sum().item(), 6))"),
    Piece("latest_data = out.data"),
    Piece("means[step] = out.detach().mean()", "means = torch.zeros(12, device=device)",
          "print(means.cpu().numpy().round(5).tolist())"),
    Piece("correct += (out.argmax(1) == y).sum()",
          "correct = torch.zeros((), dtype=torch.long, device=device)", "print(correct.item())"),
    Piece("right += (out.argmax(1) == y).sum().item()", "right = 0", "print(right)"),
    Piece("confusion[y, out.argmax(1)] += 1", "confusion = torch.zeros(4, 4, device=device)",
          "print(confusion.sum().item())"),
    Piece("prior = 0.9 * prior + 0.1 * out.detach().mean(0)\nout = out - prior",
          "prior = torch.zeros(4, device=device)", renews=True),
    Piece("prior.mul_(0.9).add_(out.detach().mean(0), alpha=0.1)\nout -= prior",
          "prior = torch.zeros(4).to(device)", writes=True),
    Piece("bank[step % 4] = out.detach()[0]", "bank = torch.zeros(4, 4, device=device)"),
    Piece("queue = torch.cat([queue[2:], out.detach()[:2]])",
          "queue = torch.zeros(6, 4, device=device)", "print(round(queue.sum().item(), 6))"),
    Piece("at = step * 2 % 8\nring[at:at + 2] = out.detach()[:2]\nat += 2",
          "ring = torch.zeros(8, 4).cuda()"),
    Piece('print(f"{step}: {out.detach().cpu().numpy().sum():.6f}")'),
    Piece("largest = max(largest, out.max().item())", 'largest = float("-inf")', "print(largest)"),
    Piece("spread.append(float(out.std()))", "spread = []", "print(len(spread))"),
    Piece("assert out.shape == (6, 4)"),
    Piece("if out.requires_grad:\n    out.register_hook(lambda gradient: gradient * $f)"),
    Piece("if torch.isnan(out).any():\n    break"),
    Piece("first_row = out[0].tolist()\nprint(first_row[0] > 0)"),
    Piece("meter.update(out.detach().mean(), 6)", "meter = Meter()", "print(meter)"),
]  # fmt: skip

# Behind the losses, of which cross entropy saves nothing of `out` that a write would change.
LATE = [
    *_writing(
        "out[:, 0] = 0",
        "out *= $f",
        "out.detach().mul_($f)",
        "out.data[$r] += $s",
        "out.zero_()",
    ),
]

PARTS = [
    *[Piece(text, parts="dict") for text in (
        'losses["reg"] *= $f',
        'losses.update(extra=$s * out.abs().mean())',
        'losses.update(decay=$s * sum(p.square().sum() for p in params))',
        'losses["ce"] = losses["ce"] * $f',
        'losses["margin"] = F.relu($f - out[:, 0]).mean()',
        'losses.setdefault("bonus", $s * out.square().mean())',
        'for name in losses:\n    losses[name] = losses[name] * $f',
        'for name, value in losses.items():\n    value *= $f',
        'losses |= {"both": $s * out.mean().abs()}',
        'reg = losses.pop("reg")\nlosses["reg"] = reg * 0.5',
        'print({name: round(value.item(), 6) for name, value in losses.items()})',
        'if losses["ce"] > $f:\n    losses["reg"] = losses["reg"] * 2',
        'shared = dict(losses)\nshared["ce"] *= $f',
        'first_loss = losses["ce"]\nfirst_loss += $s',
        'if $when:\n    losses["reg"] = losses["reg"] * 0',
    )],
    Piece('losses["ce"] *= scale["ce"]\nscale["ce"] *= 0.98', 'scale = {"ce": 1.0}', parts="dict"),
    Piece('for name, value in losses.items():\n'
          '    totals[name] = totals.get(name, 0) + value.detach()',
          "totals = {}", parts="dict"),
    Piece('for name, value in losses.items():\n    log.setdefault(name, []).append(value.detach())',
          "log = {}", parts="dict"),
    Piece('sums = {name: value.detach() for name, value in losses.items()}', parts="dict"),
    *[Piece(text, parts="list") for text in (
        "terms[0] *= $f",
        "terms[-1] = terms[-1] * $f",
        "terms.append($s * sum(p.abs().sum() for p in params))",
        "terms += [$s * out.abs().mean(), $s * out.square().mean()]",
        "terms.insert(0, $s * out.mean().abs())",
        "head, *rest = terms\nterms = [head * $f, *rest]",
        "terms[1:] = [t * 0.5 for t in terms[1:]]",
        "terms.sort(key=float)",
        "terms.reverse()",
        "for i, term in enumerate(terms):\n    terms[i] = term * (i + 1) / 2",
        "for term in terms:\n    term *= 0.9",
        "print(len(terms), terms[0].item())",
        "last_terms = [t.detach() for t in terms]",
        "terms[0] += terms[-1].detach() * $s",
        "if len(terms) > 2:\n    del terms[-1]",
    )],
    *[Piece(text, parts="object") for text in (
        "parts.reg *= $f",
        'parts.scale("ce", $f)',
        'setattr(parts, "extra", $s * out.abs().mean())',
        'vars(parts)["reg"] = parts.reg * $f',
        "parts.ce = parts.ce * $f",
        "parts.add($s * out.square().mean())",
        "print(step, float(parts.ce))",
        "ce = parts.ce\nce += $s",
        "parts.kept = parts.ce.detach()",
    )],
]  # fmt: skip

LOSS = [
    *[Piece(text) for text in (
        "loss = loss * $f",
        "loss *= $f",
        "loss += $s * out.abs().mean()",
        "loss = loss + $s * sum(p.square().sum() for p in params)",
        "for p in params:\n    loss = loss + $s * p.abs().mean()",
        "loss = loss / 2",
        "loss = loss * (1 + 0.1 * step)",
        "loss = loss * random.uniform(0.5, 1.0)",
        "loss *= np.random.rand() + 0.5",
        "loss = (loss - 0.1).abs() + 0.1",
        "if loss > $f:\n    loss = loss * 0.5",
        "if $when:\n    loss = loss * $f",
        "print(step, loss.item())",
        'print(f"{step} {loss.item():.8f}")',
        'print("loss", float(loss))',
        "if not torch.isfinite(loss):\n    continue",
        "assert torch.isfinite(loss)",
        "value = loss.item()\nif value > 50:\n    break",
        "loss = loss + $s * (loss.detach() - 1) ** 2",
    )],
    Piece("total += loss.detach()", "total = torch.zeros((), device=device)",
          "print(round(total.item(), 6))"),
    Piece("total_loss += loss.item()", "total_loss = 0.0", "print(total_loss)"),
    Piece("running = 0.9 * running + 0.1 * loss.detach()",
          "running = torch.zeros((), device=device)"),
    Piece("mean *= 0.9\nmean += 0.1 * loss.detach()", "mean = torch.zeros(1).to(device)"),
    Piece("trace.append(loss.detach())", "trace = []", "print(torch.stack(trace).cpu().tolist())"),
    Piece("values.append(loss.item())", "values = []", "print(values)"),
    Piece("best = min(best, loss.item())", 'best = float("inf")', "print(best)"),
    Piece("curve[step] = loss.detach()", "curve = torch.zeros(12, device=device)"),
    Piece('writer.add_scalar("loss", loss, step)', "writer = Writer()", "print(writer.lines)"),
    Piece("losses_meter.update(loss.detach(), 6)", "losses_meter = Meter()", "print(losses_meter)"),
    Piece("loss_meter.update(loss.item(), 6)", "loss_meter = Meter()", "print(loss_meter)"),
    Piece("loss = loss - baseline\nbaseline = 0.9 * baseline + 0.1 * loss.item()",
          "baseline = 0.0"),
    Piece("lowest = torch.minimum(lowest, loss.detach())", 'lowest = torch.tensor(1e9).cuda()'),
    Piece("again = CALL(x * 0.5)\nloss = loss + $s * (again - out.detach()).square().mean()",
          floats=True),
    Piece("near = x.detach().clone().requires_grad_()\n"
          "slope, = torch.autograd.grad(CALL(near).sum(), near, create_graph=True)\n"
          "loss = loss + $s * slope.square().mean()", floats=True),
    Piece("loss = loss * plan[step]", "plan = [1.0 - 0.05 * i for i in range(12)]"),
]  # fmt: skip

GRADIENTS = [
    *[Piece(text) for text in (
        "nn.utils.clip_grad_norm_(params, $f)",
        "norm = nn.utils.clip_grad_norm_(params, 1.0)",
        'print(f"{nn.utils.clip_grad_norm_(params, 1.0).item():.7f}")',
        "nn.utils.clip_grad_value_(params, $s)",
        "for p in params:\n    p.grad *= 0.5",
        "for p in params:\n    p.grad.add_(p.detach(), alpha=0.01)",
        "for p in params:\n    p.grad.data.clamp_(-1, 1)",
        "norm = torch.stack([p.grad.norm() for p in params]).norm()\n"
        "if norm > 1:\n    for p in params:\n        p.grad.div_(norm)",
        "params[0].grad[0] = 0",
        "params[-1].grad.zero_()",
        "gradient = params[0].grad",
        "gradient = params[0].grad.clone()",
        "for p in params:\n    p.grad += 0.01 * torch.randn(p.shape).to(device)",
        "biggest = max(p.grad.abs().max().item() for p in params)",
        "params[0].grad = params[0].grad * $f",
        "params[0].grad.transpose(0, -1)[0] *= $f",
    )],
    Piece("norms.append(nn.utils.clip_grad_norm_(params, 2.0))", "norms = []"),
    Piece("gradient_sum += params[0].grad.sum()", "gradient_sum = torch.zeros((), device=device)"),
    Piece("for p in params:\n    p.grad += 0.01 * torch.randn_like(p)", draws=True),
]  # fmt: skip

_AVERAGE = "average = [p.detach().clone() for p in params]"
_EVALUATE = """if $when:
    model.eval()
    with torch.no_grad():
        {}
    model.train()"""

AFTER = [
    Piece("with torch.no_grad():\n    for mean_p, p in zip(average, params):\n"
          "        mean_p.mul_(0.9).add_(p, alpha=0.1)", _AVERAGE),
    Piece("for mean_p, p in zip(average, params):\n    mean_p.lerp_(p.detach(), 0.1)", _AVERAGE),
    Piece("for i, p in enumerate(params):\n    average[i] = 0.9 * average[i] + 0.1 * p.detach()",
          _AVERAGE),
    Piece("decay = min(0.9, (1 + step) / (10 + step))\nfor mean_p, p in zip(average, params):\n"
          "    mean_p.data.mul_(decay).add_((1 - decay) * p.data)", _AVERAGE),
    Piece("mean_params.update(params)", "mean_params = Average(params)"),
    Piece("with torch.set_grad_enabled($when):\n    outside = CALL(probe).mean()", "PROBE"),
    Piece("averaged.update_parameters(model)",
          "averaged = torch.optim.swa_utils.AveragedModel(model)", module=True),
    Piece("for name, value in model.state_dict().items():\n"
          "    if value.is_floating_point():\n"
          "        shadow[name].mul_(0.9).add_(value, alpha=0.1)",
          "shadow = {name: value.clone() for name, value in model.state_dict().items()}",
          module=True),
    Piece(_EVALUATE.format("print(step, CALL(probe).sum().item())"),
          "PROBE", module=True),
    Piece(_EVALUATE.format("scores.append(CALL(probe).argmax(1).float().mean())"),
          "scores = []\nPROBE", module=True),
    Piece("with torch.no_grad():\n    for p in params:\n        p.clamp_(-1, 1)"),
    Piece("with torch.no_grad():\n    for p in params:\n        p.mul_(0.999)"),
    Piece("params[0].data[0] *= 0.9"),
    Piece("if $when:\n    snapshot = [p.detach().clone() for p in params]", "snapshot = None"),
    Piece("weights_now = [p.detach() for p in params]"),
    Piece("if step % 4 == 3:\n    copied = copy.deepcopy(model)", "copied = None", module=True),
    Piece("if step % 4 == 3:\n    saved_state = copy.deepcopy(optimizer.state_dict())\n"
          "if step % 4 == 1 and saved_state:\n"
          "    optimizer.load_state_dict(copy.deepcopy(saved_state))",
          "saved_state = None"),
    Piece("if step == 5:\n    optimizer = type(optimizer)(params, lr=0.02)"),
    Piece('optimizer.param_groups[0]["lr"] *= 0.9'),
    Piece('for group in optimizer.param_groups:\n    group["lr"] = 0.05 / (2 + step)'),
    Piece("if step % 4 == 2:\n    target.load_state_dict(model.state_dict())",
          "target = copy.deepcopy(model)", module=True),
    Piece("if $when:\n    print(step, sum(p.sum().item() for p in params))"),
    Piece("if $when:\n    print(step)"),
    Piece("steps += 1", "steps = 0", "print(steps)"),
    Piece("norms_of_weights = torch.stack([p.detach().norm() for p in params])"),
    Piece("with torch.no_grad():\n    params[0] += 0.001 * torch.randn_like(params[0])",
          draws=True),
    Piece("changes.append((params[0] - before).abs().sum().item())\n"
          "before = params[0].detach().clone()",
          "changes = []\nbefore = params[0].detach().clone()", "print(changes)"),
]  # fmt: skip
