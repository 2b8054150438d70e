// Matrix products, C = A B^T, over batches: the depth runs along the rows of
// both A and B.
#include "product.cuh"

// A batch of matrices; distances are in elements.
struct Matrix {
  u64 address;
  i64 row, depth, batch;
};

struct GemmArgs {
  Matrix a, b, c;
  Tiling tiling;
  i64 type; // gemm_any
};

// Elements anywhere.
struct Anywhere {
  static const bool along_depth = true;
  const u8 *address;
  i64 row, step; // in bytes
  int rows, depth, type, size;

  struct Place {
    const u8 *p;
    bool in;
  };
  METHOD Anywhere(u64 address, i64 row, i64 step, i64 rows, i64 depth, int type)
      : address((const u8 *)address), row(row * number_size(type)), step(step * number_size(type)), rows((int)rows), depth((int)depth),
        type(type), size(number_size(type)) {}
  METHOD Place place(int i) const { return Place{address + i * row, i < rows}; }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    valid = p.in && k < depth ? size : 0;
    return p.p + k * step;
  }
};

template <class E, class Run> DEVICE void gemm(const GemmArgs &a, const E &engine, Run run) {
  with_tile(a.tiling, [&](int batch, int m0, int n0, const Share &s) {
    int size = number_size(engine.type);
    u64 x = a.a.address + batch * a.a.batch * size, y = a.b.address + batch * a.b.batch * size;
    Output c = {(u8 *)a.c.address + batch * a.c.batch * size, a.c.row, (int)a.tiling.m, (int)a.tiling.n};
    run(x, y, c, m0, n0, s);
  });
}

template <class T> DEVICE void gemm(const GemmArgs &a) {
  Engine<T> e;
  gemm(a, e, [&](u64 x, u64 y, const Output &c, int m0, int n0, const Share &s) {
    e.product(Rows(x, a.a.row, a.tiling.m, a.tiling.k, e.type), Rows(y, a.b.row, a.tiling.n, a.tiling.k, e.type), c, m0, n0, s);
  });
}

KERNEL(gemm_f32, Engine<f32>::block, 2, GemmArgs) { gemm<f32>(a); }
KERNEL(gemm_f16, Engine<f16>::block, 2, GemmArgs) { gemm<f16>(a); }
KERNEL(gemm_bf16, Engine<bf16>::block, 2, GemmArgs) { gemm<bf16>(a); }
#if ARCH >= 800
KERNEL(gemm_tf32, Engine<tf32>::block, 2, GemmArgs) { gemm<tf32>(a); }
#endif

KERNEL(gemm_any, AnyEngine::block, 1, GemmArgs) {
  AnyEngine e = {(int)a.type};
  gemm(a, e, [&](u64 x, u64 y, const Output &c, int m0, int n0, const Share &s) {
    e.product(Anywhere(x, a.a.row, a.a.depth, a.tiling.m, a.tiling.k, e.type), Anywhere(y, a.b.row, a.b.depth, a.tiling.n, a.tiling.k, e.type), c,
              m0, n0, s);
  });
}
