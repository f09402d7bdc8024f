"""Compiled steps: which are moved into a function."""

from __future__ import annotations

import pytest
from helpers import migrated

from tests.engine.snippets import STEP, exact, in_loop

COMPUTED = {
    "loss = criterion(net(x), y)": True,
    "with torch.autocast('cuda'):\n            loss = criterion(net(x), y)": True,
    "out = net(x)\n        loss = criterion(out, y) + 0.1 * out.square().mean()": True,
    "loss = 0\n        for k in range(3):\n            loss = loss + net(x).mean()": True,
    "loss = torch.nn.functional.mse_loss(net(x), y)\n        total = loss * 2": True,
    "loss = criterion(net(x), y)\n        print('here')": True,
    "loss = criterion(net(x), y)\n        meter.update(loss.item())": True,
    "loss = criterion(net(x), y)\n        meter.refresh(loss)": False,
    "loss = criterion(net(x), y) * i": False,
    "loss = criterion(net(x), y)\n        seen = loss.item()": True,
    "loss = criterion(net(x), y)\n        seen = net(x).mean().item()": True,
    "loss = criterion(net(x), y)\n        if loss.item() > 9:\n            continue": False,
    "loss = criterion(net(x), y)\n        print(net.scale.item())": False,
    "loss = criterion(net(x), y)\n        print(opt.param_groups[0]['lr'])": False,
    "self.loss = loss = criterion(net(x), y)": False,
    "out = net(x)\n        print(out)\n        loss = criterion(out, y)": True,
    "x.mul_(2)\n        print(x)\n        loss = criterion(net(x), y)\n        x.mul_(3)": True,
    "loss = criterion(net(x), y)\n        n = loss.item()\n        loss = loss / n": False,
    "loss = save_model(net(x))": False,
    "loss = compute(net(x))": False,
    "loss = criterion(net(x + torch.rand(3)), y)": False,
    "losses['a'] = loss = criterion(net(x), y)": False,
}


@pytest.mark.parametrize(("code", "moves"), COMPUTED.items())
def test_a_step_is_moved_if_it_is_nothing_but_computation(code: str, moves: bool) -> None:
    body = f"opt.zero_grad()\n        {code}\n        loss.backward()\n        opt.step()"
    source = STEP.format(body)
    result = migrated(source, "torchax")
    assert ("@tpu_runtime.train_step" in result) == moves
    if not moves:
        assert result.count("opt.step()") == 1
        assert result.index("for i,") < result.index("opt.step()")


def test_a_copy_of_a_model_is_a_model() -> None:
    code = "loss = criterion(net(x), follower(x))\n        loss.backward()\n        opt.step()"
    source = f"import copy\n{STEP.format(code)}"
    copied = source.replace(
        "    for i,",
        "    first = torch.nn.Linear(3, 3)\n    follower = copy.deepcopy(first)\n    for i,",
        1,
    )
    assert "@tpu_runtime.train_step" in migrated(copied, "torchax")
    assert "train_step" not in migrated(source, "torchax")  # whatever `follower` is


@pytest.mark.parametrize(
    "definition",
    [
        "def criterion(a, b):\n    print(a)\n    return a\n",
        "def criterion(a, b):\n    return log(a)\n",
        "from losses import criterion\n",
        "def criterion(a, b):\n    state['n'] = 1\n    return a\n",
    ],
)
def test_a_function_that_may_do_more_stays_in_the_loop(definition: str) -> None:
    source = STEP.format("loss = criterion(net(x), y)\n        loss.backward()\n        opt.step()")
    source = source.replace("criterion = torch.nn.CrossEntropyLoss()\n", definition)
    assert "train_step" not in migrated(source, "torchax")


def test_what_goes_in_and_what_comes_out() -> None:
    exact(
        """\
        import torch
        criterion = torch.nn.CrossEntropyLoss()
        def train(self, loader, warm):
            self.net.train()
            for epoch in range(9):
                for x, y in loader:
                    x, y = x.cuda(), y.cuda()

                    # forward
                    masks, out = self.net(x, warm)
                    loss = criterion(out, y)
                    for mask in masks:
                        y = self.down(y)
                        loss = loss + criterion(mask, y)  # each scale

                    self.optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                    self.optimizer.step()
                    self.scheduler.step()
                    total += loss.item() * len(x)
                out = self.net(x, warm)
                print(out)
        """,
        """\
        import torch
        import tpu_runtime
        criterion = torch.nn.CrossEntropyLoss()
        def train(self, loader, warm):
            self.net.train()

            @tpu_runtime.train_step
            def step(x, y):
                # forward
                masks, out = self.net(x, warm)
                loss = criterion(out, y)
                for mask in masks:
                    y = self.down(y)
                    loss = loss + criterion(mask, y)  # each scale

                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()
                return loss

            for epoch in range(9):
                for x, y in loader:
                    x, y = x.to("jax"), y.to("jax")

                    loss = step(x, y)
                    self.scheduler.step()
                    total += loss.item() * len(x)
                out = self.net(x, warm)
                print(out)
        """,
    )


@pytest.mark.parametrize(
    "body",
    [
        "loss = f(z)\nloss.backward()\nopt.step()",
        "opt.step(closure)",
        "self.loss.backward()\nopt.step()",
        "h = net(x)\nreport(h)\nloss = criterion(h, y)\nloss.backward()\nopt.step()",
        "loss = loss + net(x).sum()\nloss.backward()\nopt.step()",
        "losses.append(criterion(net(x), y))\nsum(losses).backward()\nopt.step()",
        "loss = criterion(net(x), y)\nif n:\n    aux = loss * 2\nloss.backward()\nopt.step()\n"
        "print(aux)",
        "loss = criterion(net(x), y) + bias\nloss.backward()\nopt.step()\nbias = 0.5",
        # the second backward pass goes through what the first step made
        "fake = net(x)\na = criterion(fake, y)\na.backward(retain_graph=True)\nopt_a.step()\n"
        "report(fake)\nb = other(fake)\nb.backward()\nopt_b.step()",
    ],
)  # fmt: skip
def test_a_step_that_can_not_be_shown_to_be_complete_stays(body: str) -> None:
    assert "train_step" not in migrated(in_loop(body), "torchax")


def test_two_optimizers_two_steps() -> None:
    exact(
        """\
        import numpy as np
        import torch
        for i, real in enumerate(data):
            real = real.cuda()
            optimizer_G.zero_grad()
            z = torch.Tensor(np.random.normal(0, 1, (8, 3))).cuda()
            # generator
            fake = generator(z)
            g_loss = criterion(discriminator(fake), ones)
            g_loss.backward()
            optimizer_G.step()

            optimizer_D.zero_grad()
            d_loss = loss(discriminator(real), ones) + loss(discriminator(fake.detach()), zeros)
            d_loss.backward()
            optimizer_D.step()
            print(g_loss.item(), d_loss.item())
        """,
        """\
        import numpy as np
        import torch
        import tpu_runtime


        @tpu_runtime.train_step
        def step_G(z):
            # generator
            fake = generator(z)
            g_loss = criterion(discriminator(fake), ones)
            g_loss.backward()
            optimizer_G.step()
            return fake, g_loss


        @tpu_runtime.train_step
        def step_D(real, fake):
            optimizer_D.zero_grad()
            d_loss = loss(discriminator(real), ones) + loss(discriminator(fake.detach()), zeros)
            d_loss.backward()
            optimizer_D.step()
            return d_loss


        for i, real in enumerate(data):
            real = real.to("jax")
            optimizer_G.zero_grad()
            z = torch.Tensor(np.random.normal(0, 1, (8, 3))).to("jax")
            fake, g_loss = step_G(z)

            d_loss = step_D(real, fake)
            print(g_loss.item(), d_loss.item())
        """,
    )


def test_steps_of_optimizers_of_any_name_have_names_of_their_own() -> None:
    step = """\
    {0}.zero_grad()
    {0}_loss = net(x).sum()
    {0}_loss.backward()
    {0}.step()
    print({0}_loss)
"""
    text = migrated(
        "import torch\na, b = (torch.optim.SGD(net.parameters(), rate) for rate in rates)\n"
        f"for x in data:\n    x = x.cuda()\n{step.format('a')}{step.format('b')}",
        "torchax",
    )
    assert "a_loss = step(x)" in text and "b_loss = step_2(x)" in text
    assert text.count("def step(x)") == text.count("def step_2(x)") == 1


DRAWN = {
    "i in range(0, len(data), 8)": """if i + 8 > len(data):
            x, y = data[i:], data[i:]
        else:
            x, y = data[i : i + 8], data[i : i + 8]""",
    "n, i in enumerate(range(0, len(data), 8))": "x, y = get_batch(data, i)",
}


@pytest.mark.parametrize(("rounds", "draws"), DRAWN.items())
def test_data_drawn_by_the_number_of_the_round_come_as_arguments(rounds: str, draws: str) -> None:
    """With the number among its arguments a step would be another program in each round."""
    step = "opt.zero_grad()\n        loss = criterion(net(x), y)\n        loss.backward()"
    source = STEP.format(f"{draws}\n        {step}\n        opt.step()")
    source = source.replace("i, (x, y) in enumerate(data)", rounds).replace("x = x.cuda()", "")
    batch = "def get_batch(data, i):\n    return data[i : i + 8], data[i + 1 : i + 9]\n"
    source = source.replace("def train", f"{batch}net.cuda()\ndef train")
    result = migrated(source, "torchax")
    assert f"    for {rounds}:\n        \n        {draws}\n        loss = step(x, y)\n" in result
