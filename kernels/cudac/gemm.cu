// Batched matrix products C = A B^T: the depth is the row direction of both A and B.
#include "product.cuh"

// A batch of matrices with contiguous rows. Strides between rows and between matrices are in elements.
struct Matrix {
  u64 address;
  i64 row, batch;
};

struct GemmArgs {
  Matrix a, b, c;
  Tiling tiling;
};

template <class T> DEVICE void gemm(const GemmArgs &a) {
  with_tile(a.tiling, [&](int batch, int m0, int n0, const Share &s) {
    Engine<T> e;
    Rows x(a.a.address + batch * a.a.batch * e.size, a.a.row, a.tiling.m, a.tiling.k, e.size);
    Rows y(a.b.address + batch * a.b.batch * e.size, a.b.row, a.tiling.n, a.tiling.k, e.size);
    Output c = {(u8 *)a.c.address + batch * a.c.batch * e.size, a.c.row, (int)a.tiling.m, (int)a.tiling.n};
    e.product(x, y, c, m0, n0, s);
  });
}

KERNEL(gemm_f32, Engine<f32>::block, 2, GemmArgs) { gemm<f32>(a); }
KERNEL(gemm_f16, Engine<f16>::block, 2, GemmArgs) { gemm<f16>(a); }
KERNEL(gemm_bf16, Engine<bf16>::block, 2, GemmArgs) { gemm<bf16>(a); }
#if ARCH >= 800
KERNEL(gemm_tf32, Engine<tf32>::block, 2, GemmArgs) { gemm<tf32>(a); }
#endif
