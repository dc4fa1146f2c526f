"""What a PyTorch program does under a launcher: joins from env://, sums over the ranks."""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if sys.argv[1:] == ["raise"] and os.environ["RANK"] == "1":
        raise ValueError("a layer of 7 does not fit one of 8")
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    size = dist.get_world_size()
    assert total.item() == size * (size + 1) / 2, total
    # One write: lines of several ranks go through one pipe under mpirun.
    sys.stdout.write(f"rank {dist.get_rank()} of {size} has {int(total.item())}, "
                     f"local {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


main()
