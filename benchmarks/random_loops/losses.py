"""How random loops compute a loss, its gradients, and a step: the parts that every round has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """``text`` computes the losses, ``total`` their sum; ``parts``: what they are kept in."""

    text: str
    total: str = ""
    setup: str = ""
    parts: str = ""
    saves: bool = False  # `out`, so that no write to it may follow


LOSSES = [
    Loss("loss = F.cross_entropy(out, y)"),
    Loss("loss = criterion(out, y)", setup="criterion = nn.CrossEntropyLoss()"),
    Loss("loss = criterion(out, y)",
         setup="criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)"),
    Loss("goal = F.one_hot(y, 4).to(out.dtype)\nloss = F.mse_loss(out, goal)", saves=True),
    Loss("loss = (out - goal).square().mean()", setup="goal = torch.randn(4).to(device)"),
    Loss("loss = -F.log_softmax(out, 1)[range(6), y].mean()"),
    Loss("loss = -torch.log_softmax(out, 1).gather(1, y[:, None]).mean()"),
    Loss('each = F.cross_entropy(out, y, reduction="none")\nloss = (each * importance).mean()\n'
         "importance = 0.5 * importance + 0.5 * each.detach()",
         setup="importance = torch.ones(6, device=device)"),
    Loss("balance = balance.clone()\nbalance[y] *= 0.95\n"
         "loss = F.cross_entropy(out, y, weight=balance)",
         setup="balance = torch.ones(4, device=device)"),
    Loss("with torch.no_grad():\n    probable = out.softmax(1)\n"
         "actions = [random.choices(range(4), row)[0] for row in probable.tolist()]\n"
         "loss = -out.log_softmax(1)[range(6), actions].mean()"),
    Loss("reached = out.gather(1, y[:, None]).squeeze(1)\nwith torch.no_grad():\n"
         "    wanted = 0.5 + 0.9 * out.max(1).values\nloss = F.smooth_l1_loss(reached, wanted)",
         saves=True),
    Loss("z = F.normalize(out, dim=1)\nsimilar = z @ z.t() / 0.5\nsimilar.fill_diagonal_(-10)\n"
         "loss = F.cross_entropy(similar, partners)", saves=True,
         setup="partners = torch.tensor([1, 0, 3, 2, 5, 4], device=device)"),
    Loss("critic_optimizer.zero_grad()\n"
         "critic_loss = F.softplus(critic(out.detach())).mean()\n"
         "critic_loss = critic_loss + F.softplus(-critic(real)).mean()\n"
         "critic_loss.backward()\ncritic_optimizer.step()\n"
         "loss = F.softplus(-critic(out)).mean()", saves=True,
         setup="real = torch.randn(6, 4).cuda()\ncritic = nn.Linear(4, 1).to(device)\n"
               "critic_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)"),
    Loss('losses = {"ce": F.cross_entropy(out, y), "reg": 0.1 * out.square().mean()}',
         "loss = sum(losses.values())", parts="dict", saves=True),
    Loss('losses = {"ce": F.cross_entropy(out, y)}\nlosses["reg"] = 0.1 * out.abs().mean()',
         'loss = losses["ce"] + losses["reg"]', parts="dict", saves=True),
    Loss('losses = dict(ce=F.cross_entropy(out, y), reg=out.mean().abs())',
         "loss = 0\nfor name, value in losses.items():\n"
         "    loss = loss + value * factors.get(name, 1.0)",
         setup='factors = {"ce": 1.0, "reg": 0.05}', parts="dict"),
    Loss("terms = [F.cross_entropy(out, y)]\nterms.append(0.1 * out.square().mean())",
         "loss = torch.stack(terms).sum()", parts="list", saves=True),
    Loss("terms = [F.cross_entropy(out, y), 0.1 * out.mean().abs()]", "loss = sum(terms)",
         parts="list"),
    Loss("parts = Parts(F.cross_entropy(out, y), 0.1 * out.mean().abs())", "loss = parts.total()",
         parts="object"),
    Loss("parts.ce = F.cross_entropy(out, y)\nparts.reg = 0.1 * out.mean().abs()",
         "loss = parts.ce + parts.reg", setup="parts = Parts(0.0, 0.0)", parts="object"),
]  # fmt: skip

BACKWARDS = [
    "loss.backward()",
    "loss.backward()",
    "loss.backward()",
    "(loss * $f).backward()",
    "loss.backward(retain_graph=True)\n(0.1 * out.mean().abs()).backward()",
    "for p, g in zip(params, torch.autograd.grad(loss, params)):\n"
    "    p.grad = g if p.grad is None else p.grad + g",
    "torch.autograd.backward([loss])",
    "loss.backward(torch.tensor($f, device=device))",
]

# A gradient that is 0 but for rounding, as of a bias before a batch norm, must not become a step.
OPTIMIZERS = [
    "torch.optim.SGD({}, lr=0.1)",
    "torch.optim.SGD({}, lr=0.05, momentum=0.9)",
    "torch.optim.SGD({}, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "torch.optim.Adam({}, lr=0.01, eps=1e-6)",
    "torch.optim.AdamW({}, lr=0.01, betas=(0.8, 0.9), eps=1e-6)",
    "torch.optim.RMSprop({}, lr=0.01, eps=1e-3)",
    "torch.optim.Adagrad({}, lr=0.05, eps=1e-6)",
]

SCHEDULES = [
    "torch.optim.lr_scheduler.StepLR({}, 3, 0.5)",
    "torch.optim.lr_scheduler.CosineAnnealingLR({}, 10)",
    "torch.optim.lr_scheduler.LambdaLR({}, lambda n: 1 / (1 + n))",
    "torch.optim.lr_scheduler.OneCycleLR({}, 0.1, total_steps=30, cycle_momentum=False)",
    "torch.optim.lr_scheduler.ExponentialLR({}, 0.9)",
]

ZERO = [
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "for p in params:\n    p.grad = None",
]

# What takes the place of an optimizer's step.
STEPS = [
    "optimizer.step()",
    "optimizer.step()",
    "optimizer.step()",
    "optimizer.step()",
    "with torch.no_grad():\n    for p in params:\n        p -= 0.1 * p.grad",
    "for p in params:\n    p.data.add_(p.grad, alpha=-0.1)",
    "with torch.no_grad():\n    for p, v in zip(params, velocity):\n"
    "        v.mul_(0.9).add_(p.grad)\n        p.sub_(0.05 * v)",
]

HELPERS = {
    "Average": """
class Average:
    def __init__(self, params):
        self.values = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self, params):
        for value, p in zip(self.values, params):
            value.copy_(0.9 * value + 0.1 * p)
""",
    "Warmup": """
class Warmup:
    def __init__(self, optimizer):
        self.optimizer, self.count = optimizer, 0

    def step(self):
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.05 * min(1.0, self.count / 5)
        self.optimizer.step()
""",
    "Meter": """
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    def __str__(self):
        return f"{float(self.total) / max(self.count, 1):.6f}"
""",
    "Writer": """
class Writer:
    def __init__(self):
        self.lines = []

    def add_scalar(self, tag, value, step):
        self.lines.append((tag, round(float(value), 6), step))
""",
    "Parts": """
class Parts:
    def __init__(self, ce, reg):
        self.ce, self.reg = ce, reg

    def scale(self, name, factor):
        setattr(self, name, getattr(self, name) * factor)

    def add(self, value):
        self.reg = self.reg + value

    def total(self):
        return self.ce + self.reg
""",
    "Noted": """
class Noted:
    def __init__(self, notes, name):
        self.notes, self.name = notes, name

    def __enter__(self):
        self.notes.append(self.name)
        return self

    def __exit__(self, *error):
        self.notes.append(len(self.notes))
""",
}
