"""Code that looks like GPU code and is none."""

from __future__ import annotations

# Code that is not about a device, however much it looks so: it has to stay, to the byte.
UNRELATED = tuple(
    r"""
x = 1
----
print('train on cuda', "CUDA: %s" % name)
----
path = '/usr/local/cuda/bin'
----
d = {{'cuda_callback': 1, 'cudnn': 2}}
----
log = 'main.CUDACallback'  # cuda
----
# torch.cuda.empty_cache()
----
if args.cuda: pass
----
self.cuda = True
----
args.no_cuda = not args.cuda
----
key = 'torch_cuda_manual_seed'
----
scheduler.step()
----
env.step()
----
y = x.to(dtype)
----
y = x.cpu()
----
state.type(x, y)
----
flags = ['-gencode', 'arch=compute_80']
----
'''cuda'''
----
r'\cuda'
----
b'cuda'
----
x = a@b
----
def nothing(): ...
----
x = [
    1,   2,  # odd   spacing
      3,
]
----
lambda: (yield)
----
if  x :
    pass   # spaced
----
x = {{ 'a':1 , }}
----
cuda_home = None
----
message = 'cuda is on'
""".strip().split("\n----\n")
)
