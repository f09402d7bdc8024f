"""As older guides have it: inference, with a mark_step for each batch."""

import torch
import torch_xla.core.xla_model as xm
from parts import points, small

device = xm.xla_device()
model = small(12, 4).to(device).eval()
with torch.no_grad():
    for batch in points().tensors[0].split(16):
        output = model(batch.to(device))
        xm.mark_step()
        print("mean", f"{output.mean().item():.7f}")
xm.wait_device_ops()
