"""Compiled steps of whole training loops, in their ways."""

from __future__ import annotations

import pytest
from helpers import TARGETS, migrated, run

from migrator.diagnostics import Severity
from tests.engine.snippets import exact, in_loop


def test_steps_that_share_a_graph_move_together_and_values_are_read_behind() -> None:
    exact(
        """\
        import torch
        for data in loader:
            netD.zero_grad()
            real = data[0].cuda()
            out = netD(real)
            loss = criterion(out, one)
            loss.backward()
            D_x = out.mean().item()
            fake = netG(noise)
            criterion(netD(fake.detach()), zero).backward()
            optimizerD.step()
            netG.zero_grad()
            out = netD(fake)
            criterion(out, one).backward()
            D_G = out.mean().item()
            optimizerG.step()
            print(D_x, D_G)
        """,
        """\
        import torch
        import tpu_runtime


        @tpu_runtime.train_step
        def step(real):
            netD.zero_grad()
            out = netD(real)
            loss = criterion(out, one)
            loss.backward()
            D_x = out.mean()
            fake = netG(noise)
            criterion(netD(fake.detach()), zero).backward()
            optimizerD.step()
            netG.zero_grad()
            out = netD(fake)
            criterion(out, one).backward()
            optimizerG.step()
            return out, D_x


        for data in loader:
            real = data[0].to("jax")
            out, D_x = step(real)
            D_x = D_x.item()
            D_G = out.mean().item()
            print(D_x, D_G)
        """,
    )


def test_accumulation_a_running_average_and_states() -> None:
    exact(
        """\
        import torch
        def train(model, ema, optimizer, loader, hidden, n):
            for i, (x, y) in enumerate(loader):
                hidden = hidden.detach()
                x = x.cuda()
                out, hidden = model(x, hidden)
                loss = criterion(out, y) / n
                loss.backward()
                if (i + 1) % n == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                with torch.no_grad():
                    for a, b in zip(ema.parameters(), model.parameters()):
                        a.mul_(0.9).add_(b, alpha=0.1)
                total += loss.item()
        """,
        """\
        import torch
        import tpu_runtime
        def train(model, ema, optimizer, loader, hidden, n):
            @tpu_runtime.train_step
            def step(x, hidden, y, update):
                out, hidden = model(x, hidden)
                loss = criterion(out, y) / n
                loss.backward()
                if update:
                    optimizer.step()
                    optimizer.zero_grad()
                with torch.no_grad():
                    for a, b in zip(ema.parameters(), model.parameters()):
                        a.mul_(0.9).add_(b, alpha=0.1)
                return hidden, loss

            for i, (x, y) in enumerate(loader):
                hidden = hidden.detach()
                x = x.to("jax")
                hidden, loss = step(x, hidden, y, update=(i + 1) % n == 0)
                total += loss.item()
        """,
    )


def test_a_trainer() -> None:
    exact(
        """\
        import torch
        class Trainer:
            def run(self):
                for x, y in self.loader:
                    x = x.cuda()
                    out, self.loss = self.model(x, y)
                    self.optimizer.zero_grad()
                    self.loss.backward()
                    self.optimizer.step()
                    self.callbacks("end")
                    self.train_batch(x, y)

            def train_batch(self, x, y):
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                return loss
        """,
        """\
        import torch
        import tpu_runtime
        class Trainer:
            def run(self):
                @tpu_runtime.train_step
                def step(x, y):
                    out, loss = self.model(x, y)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    return loss

                for x, y in self.loader:
                    x = x.to("jax")
                    self.loss = step(x, y)
                    self.callbacks("end")
                    self.train_batch(x, y)

            @tpu_runtime.train_step
            def train_batch(self, x, y):
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                return loss
        """,
    )


def test_a_method_that_reads_its_loss() -> None:
    exact(
        """\
        import torch
        class Trainer:
            def update(self, batch):
                x = batch["x"].cuda()
                loss = self.criterion(self.model(x), batch["y"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                return loss.item()
        """,
        """\
        import torch
        import tpu_runtime
        class Trainer:
            def update(self, batch):
                x = batch["x"].to("jax")

                @tpu_runtime.train_step
                def step(x, batch):
                    loss = self.criterion(self.model(x), batch["y"])
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    return loss

                loss = step(x, batch)
                return loss.item()
        """,
    )


def test_a_closure_is_compiled_as_it_stands() -> None:
    exact(
        """\
        import torch
        opt = torch.optim.LBFGS(net.cuda().parameters())
        for x, y in data:
            def closure():
                opt.zero_grad()
                loss = criterion(net(x), y)
                loss.backward()
                return loss
            opt.step(closure)
        """,
        """\
        import torch
        import tpu_runtime
        opt = torch.optim.LBFGS(net.to("jax").parameters())
        for x, y in data:
            @tpu_runtime.train_step
            def closure():
                opt.zero_grad()
                loss = criterion(net(x), y)
                loss.backward()
                return loss
            opt.step(closure)
        """,
    )


def test_a_step_that_stays_slow_is_said_so() -> None:
    source = "import torch\nfor x in data:\n    h = net(x.cuda())\n    report(h)\n"
    source += "    loss = h.sum()\n    loss.backward()\n    opt.step()\n"
    advice = [d for d in run(source, "torchax").diagnostics if d.severity is Severity.ADVICE]
    assert [d.code for d in advice] == ["TRN005"]
    assert "line 4 calls report()" in advice[0].message


def test_an_agent_of_the_project_and_what_is_read_inside_of_a_block() -> None:
    exact(
        """\
        import numpy as np
        import torch
        class Agent(torch.nn.Module):
            def get_action_and_value(self, x):
                probs = torch.distributions.Categorical(logits=self.actor(x))
                return probs.log_prob(probs.sample()), probs.entropy(), self.critic(x)
        agent = Agent().to("cuda")
        for start in range(0, size, batch):
            end = start + batch
            rows = order[start:end]
            chance, entropy, value = agent.get_action_and_value(states[rows])
            ratio = chance.exp()
            with torch.no_grad():
                far = (ratio - 1).abs()
                clipped += [far.mean().item()]  # how often
            loss = -(gains[rows] * ratio).mean() - 0.1 * entropy.mean() + value.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        """\
        import numpy as np
        import torch
        import tpu_runtime
        class Agent(torch.nn.Module):
            def get_action_and_value(self, x):
                probs = torch.distributions.Categorical(logits=self.actor(x))
                return probs.log_prob(probs.sample()), probs.entropy(), self.critic(x)
        agent = Agent().to("jax")


        @tpu_runtime.train_step
        def step(rows):
            chance, entropy, value = agent.get_action_and_value(states[rows])
            ratio = chance.exp()
            with torch.no_grad():
                far = (ratio - 1).abs()
            loss = -(gains[rows] * ratio).mean() - 0.1 * entropy.mean() + value.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return far


        for start in range(0, size, batch):
            end = start + batch
            rows = order[start:end]
            far = step(rows)
            clipped += [far.mean().item()]  # how often
        """,
    )


def test_a_weight_is_read_before_it_changes() -> None:
    body = "w = net.fc.weight\nloss = criterion(net(x), y)\nprint(w.norm().item())\n"
    body += "loss.backward()\nopt.step()"
    assert "train_step" not in migrated(in_loop(body), "torchax")


def test_accumulation_with_more_behind_the_step() -> None:
    exact(
        """\
        import torch
        def train(args, model, loader, optimizer, scheduler):
            for i, batch in enumerate(loader):
                batch = tuple(t.cuda() for t in batch)
                loss = model(*batch)[0] / args.n
                loss.backward()
                total += loss.item()
                if (i + 1) % args.n == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()  # the rate
                    model.zero_grad()
                    done += 1
        """,
        """\
        import torch
        import tpu_runtime
        def train(args, model, loader, optimizer, scheduler):
            @tpu_runtime.train_step
            def step(batch, update):
                loss = model(*batch)[0] / args.n
                loss.backward()
                if update:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                return loss

            for i, batch in enumerate(loader):
                batch = tuple(t.to("jax") for t in batch)
                loss = step(batch, update=(i + 1) % args.n == 0)
                total += loss.item()
                if (i + 1) % args.n == 0:
                    scheduler.step()  # the rate
                    model.zero_grad()
                    done += 1
        """,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(\n    a, pin_memory=True\n)", "(\n    a\n)"),
        ("(\n    a,\n    pin_memory=True\n)", "(\n    a\n)"),
        ("(\n    a, pin_memory=True,  # c\n)", "(\n    a,  # c\n)"),
        ("(a, pin_memory=True,\n  b=3 )", "(a, b=3 )"),
    ],
)
def test_the_closing_bracket_stays_where_it_was(before: str, after: str) -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\nx.cuda()\n"
    assert migrated(f"{head}l = DataLoader{before}\n").endswith(f"l = DataLoader{after}\n")
    load = "import torch\nx = model.load_state_dict(torch.load("
    assert migrated(f"{load}\n    a\n))\n") == f'{load}\n    a, map_location="cpu"\n))\n'


@pytest.mark.parametrize("options", [{}, {"portable": True}])
@pytest.mark.parametrize("target", TARGETS)
def test_a_device_that_is_named_like_an_index(target: str, options: dict[str, bool]) -> None:
    source = "import torch\ngpu = torch.device('cuda')\nx = y.to(gpu)\n"
    assert migrated(source, target, **options).endswith("x = y.to(gpu)\n")  # also the second time
