"""One rank: times torch's gloo all-reduce over groups of the first ranks. Rank 0 prints {ranks: {bytes: [seconds]}}."""

import json
import os
import sys
import time
from datetime import timedelta


def main() -> None:
    rank, world, sizes, groups = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
    os.environ |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": sys.argv[5]}
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    answer = {}
    for n in groups:
        group = dist.new_group(list(range(n)))
        if rank >= n:
            continue
        for nbytes in sizes:
            x = torch.ones(nbytes // 4)
            dist.all_reduce(x, group=group)
            seconds = []
            for _ in range(5):
                x.fill_(1.0)
                dist.barrier(group=group)
                begin = time.perf_counter()
                dist.all_reduce(x, group=group)
                seconds.append(time.perf_counter() - begin)
            assert float(x[0]) == n
            answer.setdefault(n, {})[nbytes] = seconds
    if rank == 0:
        print(json.dumps(answer), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
