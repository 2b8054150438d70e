// Matrix products, C = A B^T, over batches: the depth runs along the rows of
// both A and B.
#include "product.cuh"

// A batch of matrices; distances are in elements.
struct Matrix {
  u64 address;
  i64 row, depth, batch;
  i64 bytes; // of one matrix; what lies past them counts as zero (gemm_any)
};

struct GemmArgs {
  Matrix a, b, c;
  Tiling tiling;
  i64 type; // gemm_any
};

// Rows that begin at whole vectors, dense along the depth. They may overlap.
template <class T> struct Rows {
  static const bool along_depth = true;
  static const int size = sizeof(typename T::bits);
  const u8 *address;
  i64 row; // in bytes
  int last, depth;

  struct Place {
    const u8 *p;
  };
  METHOD Rows(const Matrix &m, i64 batch, i64 rows, i64 depth)
      : address((const u8 *)m.address + batch * m.batch * size), row(m.row * size), last((int)rows - 1), depth((int)depth) {}
  // Past the last row, it again: nobody looks at what comes of it.
  METHOD Place place(int i) const { return Place{address + smaller(i, last) * row}; }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    valid = larger(smaller((depth - k) * size, 16), 0);
    return p.p + (i64)k * size;
  }
};

template <class T> DEVICE void gemm(const GemmArgs &a) {
  const Tiling &t = a.tiling;
  with_tile(t, [&](int batch, int m0, int n0, const Share &s) {
    Output c = {(u8 *)a.c.address + batch * a.c.batch * (int)sizeof(typename T::bits), a.c.row, (int)t.m, (int)t.n};
    Engine<T>::product(Rows<T>(a.a, batch, t.m, t.k), Rows<T>(a.b, batch, t.n, t.k), c, m0, n0, s);
  });
}

KERNEL(gemm_f32, Engine<f32>::block, 2, GemmArgs) { gemm<f32>(a); }
KERNEL(gemm_f16, Engine<f16>::block, 2, GemmArgs) { gemm<f16>(a); }
KERNEL(gemm_bf16, Engine<bf16>::block, 2, GemmArgs) { gemm<bf16>(a); }

// Elements anywhere.
struct Anywhere {
  static const bool along_depth = true;
  const u8 *address;
  i64 row, step, bytes;
  int rows, depth, type;

  METHOD Anywhere(const Matrix &m, i64 batch, i64 rows, i64 depth, int type)
      : row(m.row), step(m.depth), bytes(m.bytes), rows((int)rows), depth((int)depth), type(type) {
    address = (const u8 *)m.address + batch * m.batch * number_size(type);
  }
  METHOD float number(int i, int k) const {
    i64 at = (i * row + k * step) * number_size(type);
    return i < rows && k < depth && at + number_size(type) <= bytes ? load_number(address + at, type) : 0;
  }
};

KERNEL(gemm_any, cores::block, 1, GemmArgs) {
  const Tiling &t = a.tiling;
  int type = (int)a.type;
  with_tile(t, [&](int batch, int m0, int n0, const Share &s) {
    Output c = {(u8 *)a.c.address + batch * a.c.batch * number_size(type), a.c.row, (int)t.m, (int)t.n};
    cores::product<f32, cores::Elements>(Anywhere(a.a, batch, t.m, t.k, type), Anywhere(a.b, batch, t.n, t.k, type), c, type, m0, n0, s);
  });
}
