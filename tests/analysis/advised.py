"""Sources with something to advise, by code, and sources that only look like them."""

from __future__ import annotations


def in_forward(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"class Layer(nn.Module):\n    def forward(self, x, n=0):\n{body}\n        return x\n"


def in_loop(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"for x, y in batches:\n    out = model(x)\n    loss = F.mse_loss(out, y)\n{body}\n"


FOUND = {
    "ADV001": [
        in_forward("x = x[x > 0]"),
        in_forward("mask = x.abs() > 1", "x = self.weight * x[mask & (x < 3)]"),
        in_forward("x = x[:, ~torch.isnan(x)]"),
        in_forward("mask = x > 0", "x = x[~mask]"),
        in_forward("mask = torch.zeros_like(x, dtype=torch.bool)", "x = x[mask]"),
        in_forward("x = torch.nonzero(x)"),
        in_forward("i = x.nonzero(as_tuple=True)"),
        in_forward("i, j = torch.where(x > 0)"),
        in_forward("x = torch.masked_select(x, self.mask)"),
        in_forward("x = x.sum(0).unique()"),
        in_forward("keep = torchvision.ops.nms(x, self.scores, 0.5)"),
        in_forward("x = x.repeat_interleave(x.sum(1), 0)"),
        in_loop("best = out[out > 0.5]"),
        in_loop("rows = np.where(labels > 0)", "best = out[rows]"),
        in_loop("mask = out > 0.5", "rest = out[~mask]"),
        in_loop("mask = (out > 0.5).to(device)", "best = out[mask]"),
        in_loop("mask = torch.eye(3, dtype=torch.bool).to(device)", "rest = out[~mask]"),
        "class A(nn.Module):\n    def forward(self, x):\n        return self.pick(x)\n\n"
        "    def pick(self, x):\n        return x[x > 0]\n",
    ],
    "ADV002": [
        "for i in range(9):\n    new = model(x)\n    x = torch.cat([x, new], dim=1)\n",
        "for i in range(9):\n    last = x[:, -8:]\n    x = torch.cat((x, model(last)), 1)\n",
        "while go():\n    x = model(x)\n    seen = torch.cat([seen, x])\n",
        in_forward("k = torch.cat([self.cache_k, x], dim=1)"),
        in_forward("self.cache = torch.cat([self.cache, x], dim=1)"),
        "def keep(module, _, y):\n    cache[module] = torch.cat([cache[module], y], dim=1)\n"
        "    return cache[module]\n\nmodel.key.register_forward_hook(keep)\n",
    ],
    "ADV003": [
        in_loop("total += loss.item()"),
        in_loop("losses.append(loss.item())"),
        in_loop("losses.append(float(loss))"),
        in_loop("print(f'{loss:.3f}')"),
        in_loop("print(loss)"),
        in_loop("bar.set_postfix(loss=loss.item())"),
        in_loop("outs.append(out.cpu().numpy())"),
        in_loop("outs.extend(out.argmax(1).tolist())"),
        in_loop("right += (out.argmax(1) == y).sum().item()"),
        "for x, y in loader:\n    loss = compute(x, y)\n    loss.backward()\n"
        "    total += loss.item()\n",
        in_forward("for a, b in x.sum(1).tolist():", "    x = x + a"),
        "while input():\n    for x in rows:\n        out = model(x)\n        print(out.item())\n",
    ],
    "ADV004": [
        "train_loader = DataLoader(data, batch_size=8, num_workers=2)\n",
        "loader = DataLoader(data, 8, True, num_workers=2)\n",
        "loader = DataLoader(data, batch_size=size, shuffle=True, num_workers=2)\n",
        "from transformers import TrainingArguments\na = TrainingArguments('out', bf16=True)\n",
    ],
    "ADV005": [
        "train_loader = DataLoader(data, batch_size=8, drop_last=True)\n",
        "loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True, num_workers=0)\n",
    ],
    "ADV006": [
        "net = nn.Sequential(nn.Linear(784, 200), nn.Linear(200, 10))\n",
        "class A(nn.Module):\n    def __init__(self):\n        self.e = nn.Embedding(50, 300)\n"
        "        self.f = nn.Linear(300, n)\n",
        "train = DataLoader(data, batch_size=12, shuffle=True, drop_last=True, num_workers=2)\n",
    ],
    "ADV007": [
        in_forward("if x.sum() > 0:", "    x = -x"),
        in_forward("if n and x.max().item() > 1:", "    x = x / 2"),
        in_forward("x = -x if x.mean() < 0 else x"),
        in_forward("assert not torch.isnan(x).any()"),
        in_forward("assert (x[:, 2:] >= x[:, :2]).all()"),
        in_forward("assert n or torch.all((x > 0) & (x < 1))"),
        "def area(boxes):\n    assert (boxes[:, 2:] >= boxes[:, :2]).all()\n    return boxes\n\n\n"
        "class A(nn.Module):\n    def forward(self, x):\n        return area(x)\n",
        "class Norm(nn.Module):\n    def __init__(self):\n"
        "        self.register_buffer('ready', torch.tensor(0))\n"
        "    def forward(self, x):\n        if self.ready.item() == 0:\n"
        "            self.start(x)\n        return x\n",
        "class Norm(nn.Module):\n    def __init__(self):\n"
        "        self.scale = nn.Parameter(torch.ones(1))\n"
        "    def forward(self, x):\n        return x / self.scale if self.scale > 0 else x\n",
        in_forward("while x.norm() > 1:", "    x = x / 2"),
        in_forward("if torch.equal(x, self.last):", "    x = x + 1"),
        in_loop("if torch.isnan(loss):", "    break"),
        "while True:\n    new = model(x).argmax(-1)\n    if new == end:\n        break\n",
    ],
    "ADV008": [
        in_forward("x = x * torch.tensor([1.0, 2.0], device=x.device)"),
        in_forward("x = x + torch.from_numpy(self.table).to(x.device)"),
        in_forward("t = torch.tensor([1.0, 2.0])", "t = t.to(torch.half)", "x = t.view(2).cuda()"),
        in_forward("x = x * torch.as_tensor([1, 2]).float().type_as(x)"),
    ],
    "ADV009": [
        in_forward("x = x.double()"),
        in_forward("x = x.to(torch.float64)"),
        in_forward("x = torch.zeros(3, device=x.device, dtype=torch.double)"),
        "model.double()\n",
        in_forward("x = x.long() * 2654435761"),
    ],
    "ADV010": [
        "pipe = Pipe.load(name, torch_dtype=torch.float16)\n",
        in_forward("x = x.to(torch.half)"),
        "dtype = torch.float16 if quick else torch.float32\n",
    ],
    "ADV011": [
        "x = tokenizer(texts, padding=True, return_tensors='pt')\n",
        "x = self.tokenizer.pad(rows, padding='longest', max_length=128)\n",
        "from transformers import DataCollatorForSeq2Seq\nc = DataCollatorForSeq2Seq(tokenizer)\n",
    ],
    "ADV012": [
        in_forward("x = self.keys[:, : n + 4]"),
        in_forward("self.keys[:4, n : n + x.shape[1]] = x"),
        in_forward("x = x * self.table[n : n + 4]"),
        in_forward("x = x * self.table[self.n : self.n + 4]", "self.n += 4"),
        in_forward("x = x * torch.arange(self.n, self.n + 4, device=x.device)", "self.n += 4"),
        "for end in range(4, 9):\n    out = model(x[:, begin:end])\n    begin = end\n",
    ],
}
LOOK_ALIKES = {
    "ADV001": [
        in_forward("x[x < 0] = 0"),  # writes at a fixed shape
        in_forward("x = torch.where(x > 0, x, 0.0)"),
        in_forward("x = x[self.index]"),
        in_forward("x = x[n > 1]"),  # a parameter with a default: an option
        in_forward("x = x.repeat_interleave(2, 0)"),
        in_forward("i = np.nonzero(self.table)"),
        in_loop("rows = np.where(labels > 0)", "best = table[rows]"),  # NumPy's
        in_loop("rows = np.where(labels > 0, 1, 0)", "best = out[rows]"),  # as many as labels
        in_forward("x = x + self.table[np.array(self.rows) > 0].sum()"),
        in_loop("names = frame[frame.age > 3].unique()"),
        in_loop("rows = labels.cpu().numpy()", "rows = rows[rows > 0]"),
        in_loop("mask = torch.eye(3, dtype=torch.bool)", "rows = table[~mask]"),  # on the CPU
        in_loop("mask = torch.eye(3).to(device)", "rows = out[mask]"),
        in_loop("rows = table[(out > 0.5).to(device, torch.long)]"),  # numbers
        in_loop("mask = torch.isnan(torch.ones(3))", "rows = table[mask]"),  # on the CPU
        "kept = boxes[boxes > 0]\n",  # runs once
    ],
    "ADV002": [
        in_forward("for layer in self.layers:", "    x = torch.cat([x, layer(x)], 1)"),
        in_forward("x = torch.cat([x, self.skip], 1)"),
        "def keep(module, y):\n    cache[module] = torch.cat([cache[module], y], dim=1)\n",
        "for i in range(9):\n    x = model(z)\n    x = torch.cat([x, z])\n",  # anew in each round
        "for i in range(9):\n    x = torch.cat([x, read(i)])\n",  # no model
        "for i in range(9):\n    model(x)\n    seen = np.concatenate([seen, x])\n",
        in_forward("x = x[:, : x.shape[1] + 1]"),
        in_forward("x = self.table[: len(x)]"),
    ],
    "ADV003": [
        in_loop("if step % 100 == 0:", "    print(loss.item())"),
        in_loop("total += loss.detach()"),
        in_loop("count += y.size(0)"),
        in_loop("total += scores.item()"),  # nothing tells that it is a tensor
        in_loop("rows.append(np.mean(values).item())"),
        in_loop("outs.append(out.detach())"),
        in_loop("action = out.argmax().item()", "env.step(action)"),  # needed at once
        in_loop("words.append(read(x).cpu())"),
        "for epoch in range(9):\n    for x, y in loader:\n        loss = model(x)\n"
        "    print(loss.item())\n",  # once in an epoch
        "for epoch in range(9):\n    loss = train_model(data)\n    total += loss.item()\n",
        "for path in paths:\n    total += read(path).item()\n",
        in_forward("for a in n.tolist():", "    x = x + a"),  # sizes, which may be on the CPU
        in_loop("print(loss.item())", "break"),  # a look at the first batch
        "while True:\n    out = model(read(input('> ')))\n    print(out.item())\n",
        "import sys\nfor line in sys.stdin:\n    print(model(read(line)).argmax(-1).tolist())\n",
    ],
    "ADV004": [
        "train_loader = DataLoader(data, batch_size=8, drop_last=True)\n",
        "train_loader = DataLoader(data, batch_size=8, drop_last=args.drop)\n",
        "train_loader = DataLoader(data, batch_size=8, **options)\n",
        "from trl import SFTConfig\na = SFTConfig('out', dataloader_drop_last=True)\n",
        "train_loader = DataLoader(data, batch_sampler=sampler)\n",
        "train_loader = DataLoader(data, shuffle=True)\n",  # one at a time
        "train_loader = DataLoader(data, batch_size=len(data), shuffle=True)\n",
        "val_loader = DataLoader(data, batch_size=8)\n",
        "test_loader = DataLoader(train_set, batch_size=8, shuffle=True)\n",
        "train_eval = DataLoader(train_set, batch_size=8, shuffle=False)\n",
    ],
    "ADV005": [
        "train_loader = DataLoader(data, batch_size=8, num_workers=args.workers)\n",
        "train_loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)\n",
        "data = TensorDataset(x, y)\ntrain_loader = DataLoader(data, batch_size=8)\n",
        "def collate(rows):\n    return torch.stack(rows).to(device)\n\n\n"
        "train_loader = DataLoader(data, batch_size=8, collate_fn=collate)\n",
        "valid_loader = DataLoader(data, batch_size=8)\n",
    ],
    "ADV006": [
        "net = nn.Sequential(nn.Linear(784, 256), nn.Linear(256, 10))\n",
        "net = nn.Linear(784, 200)\n",  # what comes out, not what is hidden
        "net = nn.Sequential(nn.Linear(9, 64), nn.Linear(64, 9))\n",  # too small to matter
        "net = nn.Sequential(nn.Linear(n, 1000), nn.Linear(1000, n))\n",  # 1024 is near
        "train = DataLoader(data, batch_size=32, shuffle=True)\n",
        "test = DataLoader(data, batch_size=12)\n",
    ],
    "ADV007": [
        in_forward("if self.training and n > 1:", "    x = -x"),
        in_forward("assert (np.array(self.sizes) > 0).all()"),
        in_forward("if x.shape[0] > 1 and x.dim() == 3:", "    x = x[0]"),
        in_forward("if x is not None and x.requires_grad:", "    x = -x"),
        in_forward("if len(x) > 3 or x.size(0) == 2:", "    x = -x"),
        in_forward("if torch.is_tensor(x) and torch.is_grad_enabled():", "    x = -x"),
        in_forward("if x.dtype == torch.float16 and torch.isinf(x).any():", "    x = x / 2"),
        in_forward("if torch.all(x == 0):", "    x = self.other(x)"),  # TEN001's
        in_forward("rows = x.cpu().numpy()", "if rows.max() > 1:", "    x = -x"),
        in_loop("if step % 9 == 0:", "    if torch.isnan(loss):", "        break"),
        "if model(x).sum() > 0:\n    go()\n",  # once
        "while True:\n    if model(read(input())).sum() > 0:\n        break\n",
        "def default(val, d):\n    return d() if callable(d) else d\n"  # `d` is no discriminator
        + in_forward("n = default(n, self.n)", "if n > 0:", "    x = -x"),
    ],
    "ADV008": [
        in_forward("x = x * torch.tensor([n, 2 * n], device=x.device)"),  # no buffer could hold it
        in_forward("x = x + torch.arange(4, device=x.device)"),
        "mean = torch.tensor([0.5, 0.5])\n",
        in_forward("sizes = torch.tensor([3, 4])", "x = x[:, : int(sizes.max())]"),
        in_forward("rows = torch.from_numpy(self.table).to(torch.float32)", "save(rows)"),
        in_forward("rows = torch.tensor([1, 2], device='cpu').long()"),
        in_forward("rows = torch.tensor([1, 2])", "rows = rows.to('cpu')"),
    ],
    "ADV009": [
        "steps = torch.linspace(0, 1, 9, dtype=torch.float64)\n",
        in_forward("table = torch.arange(4, dtype=torch.double, device='cpu')"),
        in_forward("x = x.cpu().double()"),
        in_forward("if x.dtype == torch.float64:", "    x = x.float()"),
        "rows = np.zeros(4, dtype=np.float64)\nseed = 2654435761\n",
    ],
    "ADV010": [
        "types = {'float16': torch.float16, 'float32': torch.float32}\n",
        "dtype = torch.bfloat16 if new else torch.float16\n",
        "with torch.autocast('cuda', dtype=torch.float16):\n    y = model(x)\n",
        "model.half()\n",  # PRE005's
        in_forward("if x.dtype == torch.float16:", "    x = x.float()"),
        "x = torch.zeros(3, dtype=torch.float16, device='cpu')\n",
    ],
    "ADV011": [
        "x = tokenizer(texts, padding='max_length', max_length=64)\n",
        "x = tokenizer(text, return_tensors='pt')\n",
        "x = tokenizer.pad(rows, pad_to_multiple_of=64)\n",
        "x = F.pad(x, (0, 1))\nx = tokenizer(texts, **options)\n",
        "from transformers import DataCollatorWithPadding\n"
        "collate = DataCollatorWithPadding(tokenizer, 'max_length')\n",
        "from own import DataCollatorWithPadding\nc = DataCollatorWithPadding(tokenizer)\n",
    ],
    "ADV012": [
        in_forward("x = self.table[: len(x)]"),
        in_forward("x = x[:, : x.shape[1] + 1]"),
        in_forward("self.keys[:, n] = x"),  # gpt-fast's tensor of positions
        in_forward("x = self.table[:, 4 : 4 + len(x)]"),
        in_forward("x = x * self.table[self.n : self.n + 4]"),  # the same in each call
        in_forward("x = x * torch.arange(self.n, self.n + 4, device=x.device)"),
        "for end in range(4, 9):\n    out = model(x[:, 2:4])\n    x[:, end] = out\n",
        "for n in range(9):\n    out = model(x[8 * n : 8 * n + 8])\n",  # batches
    ],
}
