"""Runs random operations of PyTorch's caching allocator and writes its statistics after each, for tools/allocations.

The first line of the output has the bytes of the GPU and the bytes in use before the first operation. Each further line
is an operation and the values of STATISTICS. m BYTES allocates on the current stream, f N frees allocation N, r N
STREAM records a use on another stream, s STREAM changes the stream, and e empties the cache.

    PYTORCH_CUDA_ALLOC_CONF=SETTINGS vprof run --gpu rtx-3060 -- python operations.py --seed 1 --count 2500 FILE
"""

import argparse
import random

import torch

STATISTICS = [name + ".all.current" for name in ("allocated_bytes", "reserved_bytes", "active_bytes")]
STATISTICS += [name + ".all.current" for name in ("inactive_split_bytes", "requested_bytes", "segment")]
STATISTICS += ["num_alloc_retries", "num_ooms"]

# Ranges of sizes in bytes, equally likely: for the small pool, for shared segments, and for segments of their own.
SIZES = [(1, 1 << 20), (1 << 20, 10 << 20), (10 << 20, 400 << 20)]


def statistics():
    values = torch.cuda.memory_stats()
    return [values[name] for name in STATISTICS]


def operations(chance, count, streams):
    """Yields count operations. Each is carried out before it is yielded."""
    live, made, stream = {}, 0, 0
    for _ in range(count):
        kind = chance.random()
        if kind < 0.02:
            torch.cuda.empty_cache()
            yield "e"
        elif kind < 0.06:
            stream = chance.randrange(len(streams))
            torch.cuda.set_stream(streams[stream])
            yield "s %d" % stream
        elif kind < 0.10 and live:
            name, other = chance.choice(list(live)), chance.randrange(len(streams))
            live[name].record_stream(streams[other])
            yield "r %d %d" % (name, other)
        elif kind < 0.45 and live:
            name = chance.choice(list(live))
            del live[name]
            yield "f %d" % name
        else:
            low, high = chance.choice(SIZES)
            size = int(low * (high / low) ** chance.random())
            failed = False
            try:
                live[made] = torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                failed = True
            made += 1
            yield "m %d" % size
            for name in chance.sample(list(live), len(live) // 2) if failed else []:
                del live[name]
                yield "f %d" % name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("file")
    options = parser.parse_args()
    free, total = torch.cuda.mem_get_info()
    streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
    with open(options.file, "w") as out:
        print(total, total - free, file=out)
        for done in operations(random.Random(options.seed), options.count, streams):
            print(done, *statistics(), file=out)


if __name__ == "__main__":
    main()
