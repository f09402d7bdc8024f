"""A pool of GPU code."""

from __future__ import annotations

# Spellings of the imports: what stands at the top, and how the rest writes torch and its parts.
IMPORTS = (
    ("import torch\n", {"torch": "torch", "cuda": "torch.cuda", "amp": "torch.cuda.amp"}),
    ("import torch as th\n", {"torch": "th", "cuda": "th.cuda", "amp": "th.cuda.amp"}),
    (
        "import os\nimport torch\nfrom torch import cuda\n",
        {"torch": "torch", "cuda": "cuda", "amp": "cuda.amp"},
    ),
    (
        "import torch, sys\nimport torch.cuda.amp as amp  # mixed precision\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "amp"},
    ),
    (
        "import torch\nimport torch.nn as nn\nfrom torch.cuda import amp\n\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "amp"},
    ),
    (
        "try:\n    import torch\nexcept ImportError:\n    raise\n",
        {"torch": "torch", "cuda": "torch.cuda", "amp": "torch.cuda.amp"},
    ),
)

# Expressions, one a line. Doubled braces: each becomes code by `format` with the words above.
EXPRESSIONS = tuple(
    r"""
x.cuda()
x.cuda(0)
x.cuda(rank)
x.cuda(device)
x.cuda(non_blocking=True)
x.cuda(device=0, non_blocking=True)
net(x.cuda()).cuda()
x.cuda().half()
x.half()
x.to('cuda')
x.to('cuda:1')
x.to(rank)
x.to(0)
x.to(device)
x.to(device='cuda', dtype={torch}.float32)
[v.cuda() for v in xs]
{{k: v.cuda(non_blocking=True) for k, v in xs.items()}}
map(lambda v: v.cuda(), xs)
map({torch}.Tensor.cuda, xs)
(x.cuda() if x.is_cuda else x)
not x.is_cuda
x.is_cuda == y.is_cuda
x.get_device()
{torch}.zeros(2, device=y.get_device())
{torch}.device('cuda')
{torch}.device('cuda:0')
{torch}.device('cuda', 1)
{torch}.device('cuda', index=rank)
{torch}.device(0)
{torch}.device(type='cuda')
{torch}.device('cuda' if {cuda}.is_available() else 'cpu')
{torch}.device('cuda') if {cuda}.is_available() else {torch}.device('cpu')
'cuda' if {cuda}.is_available() and args.gpu else 'cpu'
{torch}.device('cuda:%d' % rank)
{torch}.device('cuda:{{}}'.format(rank))
{torch}.device('cuda:' + str(rank))
{torch}.zeros(2, 3, device='cuda')
{torch}.zeros(2, device=rank)
{torch}.ones(1).to({torch}.device('cuda'))
{cuda}.is_available()
not {cuda}.is_available()
{cuda}.device_count() > 1
{cuda}.current_device()
rank % {cuda}.device_count()
{cuda}.memory_allocated() / 2**20
{cuda}.max_memory_allocated(device)
{cuda}.get_device_name(0)
{cuda}.get_device_properties(0).total_memory
{cuda}.get_device_capability()
{cuda}.mem_get_info()
{cuda}.Event(enable_timing=True)
{cuda}.Stream()
{cuda}.current_stream()
{cuda}.get_rng_state()
{cuda}.FloatTensor(2, 3).fill_(0)
{cuda}.FloatTensor
x.type({cuda}.LongTensor)
x.type('torch.cuda.FloatTensor')
({cuda}.FloatTensor if gpu else {torch}.FloatTensor)(3)
{amp}.GradScaler(enabled=gpu)
{amp}.autocast()
{torch}.load(path)
{torch}.load(path, map_location='cuda:0')
{torch}.load(path, map_location=lambda s, loc: s.cuda(0))
{torch}.compile(f)
{torch}.version.cuda
{torch}.backends.cudnn.version()
x.pin_memory()
Loader(data, 4, pin_memory=True)
Loader(data, pin_memory=True, shuffle=True,)
device == 'cuda'
'cuda' in device
device.type == 'cuda'
x.device.type != 'cuda'
impl == 'cuda' and x.device.type == 'cuda'
device.startswith('cuda')
getattr(args, 'device', 'cuda')
{{'cuda': 'nccl', 'cpu': 'gloo'}}[device.type]
['cpu'] + ['cuda'] if {cuda}.is_available() else []
param.type() in ['torch.cuda.HalfTensor']
{torch}.Generator(device='cuda').manual_seed(0)
{torch}.Generator(device=device)
{torch}.accelerator.current_accelerator()
{torch}.accelerator.is_available()
'gloo' if not {cuda}.is_available() else 'nccl'
dict(num_workers=2, pin_memory=True)
partial({torch}.amp.autocast, device_type='cuda')
""".strip().splitlines()
)

# Statements of one line.
STATEMENTS = tuple(
    r"""
{cuda}.synchronize()
{cuda}.empty_cache()
{cuda}.set_device(rank)
{cuda}.manual_seed(0)
{cuda}.manual_seed_all(seed)
{cuda}.reset_peak_memory_stats()
{torch}.backends.cudnn.benchmark = True
{torch}.backends.cudnn.deterministic = gpu
{torch}.backends.cudnn.benchmark, other = True, 3
{torch}.backends.cuda.matmul.allow_tf32 = True
{torch}.backends.cudnn.allow_tf32 = False
{torch}.set_float32_matmul_precision('high')
{torch}.set_default_device('cuda')
{torch}.set_default_tensor_type('torch.cuda.FloatTensor')
{torch}.set_default_tensor_type({cuda}.FloatTensor)
{torch}.set_default_dtype({torch}.bfloat16)
x, y = x.cuda(), y.cuda()
model = {torch}.compile(model)
model.half()
{torch}.save(model.state_dict(), path)
model.load_state_dict({torch}.load(path))
assert {cuda}.is_available(), 'needs CUDA'
device: str = 'cuda'
device = dev = 'cuda:0'
DEVICE = 'cuda'
name = 'cuda'
self.device = 'cuda'
config['device'] = 'cuda'
parser.add_argument('--device', default='cuda', help='cuda or cpu')
parser.add_argument('--no-cuda', action='store_true')
args.cuda = {cuda}.is_available()
kwargs = {{'num_workers': 1, 'pin_memory': True}}
kwargs['pin_memory'] = True
x.record_stream({cuda}.current_stream())
del x; {cuda}.empty_cache(); x = None
start.record({cuda}.current_stream())
{cuda}.current_stream().synchronize()
x = x.cuda(); y = y.cuda()
{cuda}.empty_cache();
{cuda}.nvtx.range_push('step')
os.environ['CUDA_VISIBLE_DEVICES'] = '0'
if {cuda}.is_available(): {cuda}.empty_cache()
if gpu: x = x.cuda()
for v in xs: v.cuda(); v.half()
with {amp}.autocast(): y = model(x)
with {cuda}.device(0): y = model(x)
with {cuda}.device(0), {torch}.no_grad(): y = model(x)
while {cuda}.is_available(): break
import apex
from flash_attn import flash_attn_func
return_value = x.cuda()
(x := x.cuda())
x: 'Tensor' = x.cuda()
x += x.cuda()
lines[x.cuda()] = 'cuda'
größe, 名前 = 'ünï ✓', x.cuda()
print('✓ 名前', x.cuda(), 'cuda')
s = '日本'; x = x.cuda()
with {torch}.inference_mode(): y = model(x)
model = {torch}.nn.DataParallel(model)
{torch}.distributed.init_process_group('nccl')
raise {cuda}.OutOfMemoryError
""".strip().splitlines()
)

# Statements of several lines.
BLOCKS = tuple(
    r"""
x = x.cuda(
    0,  # where
    non_blocking=True,  # how
)
----
x = x.cuda(
    # nothing to say
)
----
x = f(
    x.cuda(),  # the input
    # the other
    y.cuda(),
)
----
device = {torch}.device(
    'cuda'  # fast
    if {cuda}.is_available()
    else 'cpu'  # slow
)
----
self.t = {cuda}.FloatTensor if gpu \
    else {torch}.FloatTensor
----
loader = Loader(
    data,
    pin_memory=True,  # faster
    num_workers=2,
)
----
loader = Loader(data,
                pin_memory=True
                )
----
{cuda}.empty_cache(  # tidy
)
----
with {amp}.autocast(enabled=gpu):  # half
    y = model(x)
    z = y.cuda()  # move
----
with {torch}.autocast('cuda', dtype={torch}.float16):
    y = model(x)
----
with {torch}.autocast(device_type='cuda', dtype={torch}.bfloat16), {torch}.no_grad():
    y = x
----
with {cuda}.device(rank):  # here
    # first
    x = x.cuda()

    y = x  # last
----
with {cuda}.device(rank), open(path) as file:
    y = x
----
with {cuda}.stream(side):
    x = x.cuda(non_blocking=True)
----
with {torch}.device('cuda'):
    x = {torch}.zeros(2)
----
if {cuda}.is_available():
    {cuda}.empty_cache()  # tidy
    {cuda}.synchronize()
----
if {cuda}.is_available():
    {cuda}.empty_cache()
----
if {cuda}.is_available():
    device = 'cuda'
else:
    device = 'cpu'
----
if gpu:
    # only this
    {cuda}.set_device(0)
else:
    x = 1
----
if gpu:
    x = 1
else:
    {cuda}.empty_cache()
----
if gpu:
    x = 1
elif {cuda}.is_available():
    {cuda}.empty_cache()
----
try:
    x = x.cuda()
except RuntimeError as e:
    if 'CUDA out of memory. ' in str(e):
        {cuda}.empty_cache()
    else:
        raise
----
try:
    {cuda}.empty_cache()
finally:
    {cuda}.synchronize()
----
for v in xs:
    {cuda}.empty_cache()
else:
    x = x.cuda()
----
@{amp}.autocast()
def g(x):
    return x.cuda()
----
@{torch}.inference_mode()
def g(x, device='cuda'):
    '''cuda'''
    return x.to(device)
----
@{torch}.compile
# fast
@wraps(f)
def g(x, *, dev={torch}.device('cuda')):
    return x
----
async def g(x):
    async with lock:
        return (await x).cuda()
----
class Net(nn.Module):
    cuda: bool = True
    device: str = 'cuda'

    def forward(self, x):
        return x.cuda() if self.cuda else x
----
class Own:
    def cuda(self, *a, **k):
        return super().cuda(*a, **k)
----
match device:
    case 'cuda':
        x = x.cuda()
    case _:
        pass
----
def h(device: str = 'cuda' if {cuda}.is_available() else 'cpu', impl='cuda'):
    pass
----
text = f'''
{{x.cuda()}} on {{device}}
'''
----
def gen():
    {cuda}.empty_cache()
    yield x.cuda()

    # the end
----
def train(m):
    {cuda}.empty_cache()
----
y = (
    x
    .cuda()  # go
    .half()
)
----
print(f'{{x.cuda()}}', f"cuda:{{rank}}", f'cuda')
----
from torch.cuda.amp import autocast as ac
with ac():
    y = x
----
def local():
    import torch
    from torch.cuda import is_available
    return is_available()
----
def shadow(torch, cuda):
    return torch.cuda.is_available(), cuda.empty_cache()
""".strip().split("\n----\n")
)
