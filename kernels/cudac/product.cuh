// How a grid of blocks covers the tiles of a product, and the implementation for each type.
#pragma once
#include "cores.cuh"
#include "tensor.cuh"

const int share_unit = 32; // shares of the depth are multiples of this, so that they have whole stages

// A product's size. In the grid, x covers tiles and shares of the depth, y and z the batch.
struct Tiling {
  i64 m, n, k, batch, splits;
  double scale;
};

// with_tile calls run(batch, m0, n0, share) for the block's tile. Tiles are ordered in groups of eight rows, so that
// blocks that run at the same time share operands in the cache.
template <class Run> DEVICE void with_tile(const Tiling &t, Run run) {
  int down = ((int)t.m + tile - 1) / tile, across = ((int)t.n + tile - 1) / tile;
  int splits = (int)t.splits, id = blockIdx.x / splits, split = blockIdx.x % splits;
  int b = blockIdx.y + blockIdx.z * gridDim.y;
  if (id >= down * across || b >= t.batch) return;
  int group = id / (8 * across) * 8, height = smaller(down - group, 8), in = id - group * across;
  int m0 = (group + in % height) * tile, n0 = in / height * tile;
  int share = ((int)t.k + splits - 1) / splits;
  share = (share + share_unit - 1) / share_unit * share_unit;
  Share s;
  s.begin = smaller(split * share, (int)t.k);
  s.end = smaller(s.begin + share, (int)t.k);
  s.ticket = b * down * across + id;
  s.split = split, s.splits = splits;
  s.scale = (float)t.scale;
  run(b, m0, n0, s);
}

// The implementation for a type: tensor cores if they support it, else f32 cores.
template <class T> struct Engine {
  static constexpr int size = sizeof(typename T::bits), block = tensor::block;
  template <class A, class B> METHOD void product(const A &a, const B &b, const Output &c, int m0, int n0, const Share &s) const {
    tensor::product<T>(a, b, c, m0, n0, s);
  }
};
template <class T> struct Cores {
  static constexpr int size = sizeof(typename T::bits), block = cores::block;
  template <class A, class B> METHOD void product(const A &a, const B &b, const Output &c, int m0, int n0, const Share &s) const {
    cores::product<T>(a, b, c, m0, n0, s);
  }
};
template <> struct Engine<f32> : Cores<f32> {};
#if ARCH < 800
template <> struct Engine<bf16> : Cores<bf16> {};
#endif
