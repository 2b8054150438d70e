// Softmax and normalization over the rows of a matrix, which are contiguous. A thread keeps its first vectors of a row
// in registers, with all their loads in flight together. It reads further vectors again, from caches.
#include "device.cuh"

// The threads that compute one row: a warp or the whole block.
struct Team {
  int size, thread;
  i64 row;
  float *partial;

  METHOD Team(i64 size) : size((int)size), partial((float *)shared_memory()) {
    thread = threadIdx.x % this->size;
    row = (i64)blockIdx.x * (blockDim.x / this->size) + threadIdx.x / this->size;
  }
  METHOD float sum(float x) const { return size == 32 ? warp_sum(x) : block_sum(x, partial); }
  METHOD float max(float x) const { return size == 32 ? warp_max(x) : block_max(x, partial); }
};

// A row of a matrix: the elements before its first aligned vector (head), then vectors (body). Rows of other matrices
// are divided at the same column.
template <class T> struct Row {
  Range head, body;
  METHOD Row(u64 address, i64 row, i64 columns) {
    const i64 size = sizeof(typename T::bits);
    body = Range{address + row * columns * size, columns * size};
    head = aligned_off(body);
  }
  METHOD Row(u64 address, i64 row, i64 columns, const Row &like) : Row(address, row, columns) {
    i64 bytes = head.bytes + body.bytes, cut = like.head.bytes;
    head.bytes = cut;
    body = Range{head.address + cut, bytes - cut};
  }
  METHOD Vector get(i64 i) const { return i < 0 ? load_vector(head, 0) : load_vector(body, i); }
  METHOD void put(i64 i, Vector v) const { i < 0 ? store_vector(head, 0, v) : store_vector(body, i, v); }
  // lanes returns the number of elements in vector i; column returns the column of its first element.
  METHOD int lanes(i64 i) const {
    i64 left = i < 0 ? head.bytes : body.bytes - 16 * i;
    return (int)(smaller<i64>(left, 16) / (i64)sizeof(typename T::bits));
  }
  METHOD i64 column(i64 i) const { return i < 0 ? 0 : head.bytes / (i64)sizeof(typename T::bits) + i * T::lanes; }
};

// A thread's first vectors of a row; index -1 is the head. If all vectors are complete, they are loaded without
// individual tests.
template <class T, int Count> struct Held {
  Vector v[Count];
  METHOD Held(const Team &team, const Row<T> &row) {
    i64 n = vectors(row.body.bytes), first = team.thread - (row.head.bytes > 0);
    if (row.head.bytes == 0 && (row.body.bytes & 15) == 0 && aligned(row.body.address)) {
#pragma unroll
      for (int u = 0; u < Count; u++) {
        i64 i = first + u * team.size;
        if (i < n) v[u] = load((const Vector *)row.body.address + i);
      }
    } else {
#pragma unroll
      for (int u = 0; u < Count; u++) {
        i64 i = first + u * team.size;
        if (i < n) v[u] = row.get(i);
      }
    }
  }
};

// each calls run(index, lane count, vectors) for a thread's vectors: of one row, or of two rows divided at the same
// column.
template <class T, int Count, class Run> DEVICE void each(const Team &team, const Row<T> &row, const Held<T, Count> &held, Run run) {
  i64 n = vectors(row.body.bytes), first = team.thread - (row.head.bytes > 0);
#pragma unroll
  for (int u = 0; u < Count; u++) {
    i64 i = first + u * team.size;
    if (i < n) run(i, row.lanes(i), held.v[u]);
  }
#pragma unroll 1
  for (i64 i = first + Count * team.size; i < n; i += team.size) run(i, row.lanes(i), row.get(i));
}
template <class T, int Count, class Run>
DEVICE void each(const Team &team, const Row<T> &x, const Held<T, Count> &of_x, const Row<T> &y, const Held<T, Count> &of_y, Run run) {
  i64 n = vectors(x.body.bytes), first = team.thread - (x.head.bytes > 0);
#pragma unroll
  for (int u = 0; u < Count; u++) {
    i64 i = first + u * team.size;
    if (i < n) run(i, x.lanes(i), of_x.v[u], of_y.v[u]);
  }
#pragma unroll 1
  for (i64 i = first + Count * team.size; i < n; i += team.size) run(i, x.lanes(i), x.get(i), y.get(i));
}

// Number of vectors kept in registers: with three blocks on a multiprocessor a thread has 80 registers.
const int held_of_one = 6, held_of_two = 3;

struct SoftmaxArgs {
  u64 input, output, gradient; // gradient: of the output in backward; 0 in forward
  i64 rows, columns, team;
};

template <class T> DEVICE void softmax(const SoftmaxArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows; // false threads still take part in the block's barriers
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), y(a.output, team.row, columns, x);
  Held<T, held_of_one> held(team, x);
  float most = -3.4e38f, sum = 0;
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) most = larger(most, T::get(v, l));
  });
  most = team.max(most);
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += exponential(T::get(v, l) - most);
  });
  float scale = 1 / team.sum(sum);
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
    Vector out;
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(out, l, exponential(T::get(v, l) - most) * scale);
    y.put(i, out);
  });
}

// The gradient of the input: y (g - sum of y g). The argument input is y.
template <class T> DEVICE void softmax_backward(const SoftmaxArgs &a) {
  Team team(a.team);
  i64 columns = team.row < a.rows ? a.columns : 0;
  Row<T> y(a.input, team.row, columns), g(a.gradient, team.row, columns, y), out(a.output, team.row, columns, y);
  Held<T, held_of_two> of_y(team, y), of_g(team, g);
  float sum = 0;
  each<T>(team, y, of_y, g, of_g, [&](i64 i, int lanes, const Vector &v, const Vector &w) {
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += T::get(v, l) * T::get(w, l);
  });
  sum = team.sum(sum);
  each<T>(team, y, of_y, g, of_g, [&](i64 i, int lanes, const Vector &v, const Vector &w) {
    Vector r;
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(r, l, T::get(v, l) * (T::get(w, l) - sum));
    out.put(i, r);
  });
}

struct NormalizeArgs {
  u64 input, output, gradient;    // gradient: of the output in backward
  u64 weight, bias;               // one number per column, or 0
  u64 mean, deviation;            // mean and 1 / standard deviation in F32, one number per row, or 0
  i64 rows, columns, team;
  double epsilon;
};

// columns_of returns the numbers of the columns from first on as a vector. Every lane is otherwise if address is 0.
template <class T> DEVICE Vector columns_of(u64 address, i64 first, int lanes, float otherwise) {
  typedef typename T::bits bits;
  Vector v;
#pragma unroll
  for (int l = 0; l < T::lanes; l++) T::set(v, l, otherwise);
  if (!address) return v;
  const bits *p = (const bits *)address + first;
  if (lanes == T::lanes && aligned((u64)p)) return load((const Vector *)p);
#pragma unroll
  for (int l = 0; l < T::lanes; l++) T::set(v, l, l < lanes ? T::widen(load(p + l)) : otherwise);
  return v;
}

template <class T> DEVICE void normalize(const NormalizeArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows;
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), y(a.output, team.row, columns, x);
  Held<T, held_of_one> held(team, x);
  float sum = 0, squares = 0;
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += T::get(v, l);
  });
  float mean = team.sum(sum) / (float)a.columns;
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
#pragma unroll
    for (int l = 0; l < T::lanes; l++) {
      float d = T::get(v, l) - mean;
      if (l < lanes) squares += d * d;
    }
  });
  float deviation = reciprocal_root(team.sum(squares) / (float)a.columns + (float)a.epsilon);
  each<T>(team, x, held, [&](i64 i, int lanes, const Vector &v) {
    Vector out;
    Vector weight = columns_of<T>(a.weight, x.column(i), lanes, 1), bias = columns_of<T>(a.bias, x.column(i), lanes, 0);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(out, l, (T::get(v, l) - mean) * deviation * T::get(weight, l) + T::get(bias, l));
    y.put(i, out);
  });
  if (in && team.thread == 0) {
    if (a.mean) store((u32 *)a.mean + team.row, f32_bits(mean));
    if (a.deviation) store((u32 *)a.deviation + team.row, f32_bits(deviation));
  }
}

// The gradient of the input, from the mean and deviation that forward has stored.
template <class T> DEVICE void normalize_backward(const NormalizeArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows;
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), g(a.gradient, team.row, columns, x), out(a.output, team.row, columns, x);
  float mean = in ? bits_f32(load((const u32 *)a.mean + team.row)) : 0;
  float deviation = in ? bits_f32(load((const u32 *)a.deviation + team.row)) : 0;
  Held<T, held_of_two> of_x(team, x), of_g(team, g);
  float sum = 0, product = 0;
  each<T>(team, x, of_x, g, of_g, [&](i64 i, int lanes, const Vector &v, const Vector &w) {
    Vector weight = columns_of<T>(a.weight, x.column(i), lanes, 1);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) {
        float d = T::get(w, l) * T::get(weight, l);
        sum += d;
        product += d * (T::get(v, l) - mean) * deviation;
      }
  });
  sum = team.sum(sum) / (float)a.columns;
  product = team.sum(product) / (float)a.columns;
  each<T>(team, x, of_x, g, of_g, [&](i64 i, int lanes, const Vector &v, const Vector &w) {
    Vector r, weight = columns_of<T>(a.weight, x.column(i), lanes, 1);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) {
      float d = T::get(w, l) * T::get(weight, l);
      T::set(r, l, deviation * (d - sum - (T::get(v, l) - mean) * deviation * product));
    }
    out.put(i, r);
  });
}

KERNEL(softmax_f32, 256, 3, SoftmaxArgs) { softmax<f32>(a); }
KERNEL(softmax_f16, 256, 3, SoftmaxArgs) { softmax<f16>(a); }
KERNEL(softmax_bf16, 256, 3, SoftmaxArgs) { softmax<bf16>(a); }

KERNEL(softmax_backward_f32, 256, 3, SoftmaxArgs) { softmax_backward<f32>(a); }
KERNEL(softmax_backward_f16, 256, 3, SoftmaxArgs) { softmax_backward<f16>(a); }
KERNEL(softmax_backward_bf16, 256, 3, SoftmaxArgs) { softmax_backward<bf16>(a); }

KERNEL(normalize_f32, 256, 3, NormalizeArgs) { normalize<f32>(a); }
KERNEL(normalize_f16, 256, 3, NormalizeArgs) { normalize<f16>(a); }
KERNEL(normalize_bf16, 256, 3, NormalizeArgs) { normalize<bf16>(a); }

KERNEL(normalize_backward_f32, 256, 3, NormalizeArgs) { normalize_backward<f32>(a); }
KERNEL(normalize_backward_f16, 256, 3, NormalizeArgs) { normalize_backward<f16>(a); }
KERNEL(normalize_backward_bf16, 256, 3, NormalizeArgs) { normalize_backward<bf16>(a); }
