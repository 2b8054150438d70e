// C = A B^T for tiles of 128 by 128, where A and B are views.
//
// A view locates the 16 bytes (chunk) that begin at (index, depth):
//   along_depth   whether chunks run along the depth or along the index
//   place(i)      the part of the address that depends on the index alone
//   at(place, k, valid)  the address at depth k; valid is set to the number of valid bytes
#pragma once
#include "device.cuh"

const int tile = 128; // rows and columns of C per block

struct Output {
  u8 *address;
  i64 row; // row stride in elements
  int rows, columns;
};

// A part of the depth. Blocks with the same ticket add their results.
struct Share {
  int begin, end, ticket, split, splits;
  float scale; // factor of the result
};

// Loads a thread's chunks of a view's tile, Depth elements deep.
template <class View, class T, int Depth, int Threads> struct Loader {
  typedef T type;
  static const int lanes = T::lanes;
  static const int chunks = tile * Depth / lanes / Threads;
  static const bool along_depth = View::along_depth;
  static const int across = View::along_depth ? Depth / lanes : tile / lanes; // chunks in a row
  static const int step = Threads / across;
  const View &view;
  typename View::Place places[View::along_depth ? chunks : 1];

  METHOD static int chunk() { return threadIdx.x % across; }
  METHOD static int line(int i) { return threadIdx.x / across + i * step; }
  METHOD Loader(const View &v, int first) : view(v) {
    if (View::along_depth) {
#pragma unroll
      for (int i = 0; i < chunks; i++) places[i] = v.place(first + line(i));
    } else {
      places[0] = v.place(first + chunk() * lanes);
    }
  }
  METHOD const u8 *at(int i, int k, int &valid) const {
    return View::along_depth ? view.at(places[i], k + chunk() * lanes, valid) : view.at(places[0], k + line(i), valid);
  }
  METHOD Vector get(int i, int k) const {
    int valid;
    const u8 *p = at(i, k, valid);
    return load_lanes<T>(p, valid);
  }
};

// combine adds the results of a tile's shares. acc has the same layout in all blocks, which need not be known here. It
// returns whether this block has the sum.
template <int Count, int Threads> DEVICE bool combine(float *acc, const Share &s) {
  if (s.splits == 1) return true;
  float *mine = scratch + (i64)(s.ticket * s.splits + s.split) * (Count * Threads) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Count; i++) mine[i * Threads] = acc[i];
  if (!last_to_arrive(s.ticket, s.splits, (u32 *)shared_memory())) return false;
#pragma unroll
  for (int i = 0; i < Count; i++) acc[i] = 0;
  const float *from = scratch + (i64)s.ticket * s.splits * (Count * Threads) + threadIdx.x;
#pragma unroll 1
  for (int j = 0; j < s.splits; j++, from += Count * Threads)
#pragma unroll
    for (int i = 0; i < Count; i++) acc[i] += load_fresh(from + i * Threads);
  sync();
  return true;
}

// Rows that are contiguous along the depth and may overlap. Read in chunks of 16 bytes, they start at aligned vectors.
struct Rows {
  static const bool along_depth = true;
  const u8 *address;
  i64 row; // row stride in bytes
  int last, depth, size;

  struct Place {
    const u8 *p;
  };
  METHOD Rows(u64 address, i64 row, i64 rows, i64 depth, int size)
      : address((const u8 *)address), row(row * size), last((int)rows - 1), depth((int)depth), size(size) {}
  // An index past the last row gives the last row; the result is not used.
  METHOD Place place(int i) const { return Place{address + smaller(i, last) * row}; }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    valid = larger(smaller((depth - k) * size, 16), 0);
    return p.p + (i64)k * size;
  }
};

// write_tile copies a tile from shared memory, with rows of 256 bytes in chunks of 16, to the output. Threads are
// assigned along rows.
template <class T, int Threads> DEVICE void write_tile(const char *from, const Output &c, int m0, int n0) {
  const int size = sizeof(typename T::bits);
#pragma unroll 4
  for (int i = threadIdx.x; i < tile * 16; i += Threads) {
    int row = i / 16, chunk = i % 16, left = (c.columns - n0) * size - chunk * 16;
    if (m0 + row >= c.rows || left <= 0) continue;
    Vector v = *(const Vector *)(from + row * 256 + ((chunk ^ (row & 7)) << 4));
    store_some(c.address + ((m0 + row) * c.row + n0) * size + chunk * 16, left, v);
  }
}
