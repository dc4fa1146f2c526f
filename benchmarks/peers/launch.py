"""One rank of the peer: joins, does one all-reduce, says so."""
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
sys.stdout.write("all-reduced\n")
sys.stdout.flush()
dist.destroy_process_group()
