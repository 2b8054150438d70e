// Softmax and normalization: work on the rows of a matrix, one after the
// other in memory. Rows are read more than once, but from caches.
#include "device.cuh"

// A row has a warp, or the whole block.
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

// A row of a matrix: elements up to its first whole vector, and vectors. Other
// matrices' rows are cut where that of the first is.
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
  // Lanes of vector i that there are, and the column of the first.
  METHOD int lanes(i64 i) const {
    i64 left = i < 0 ? head.bytes : body.bytes - 16 * i;
    return (int)(smaller<i64>(left, 16) / (i64)sizeof(typename T::bits));
  }
  METHOD i64 column(i64 i) const { return i < 0 ? 0 : head.bytes / (i64)sizeof(typename T::bits) + i * T::lanes; }
};

// each calls run(vector, lane count) for the vectors of a row that are the
// thread's; -1 is what lies before the first whole one.
template <class T, class Run> DEVICE void each(const Team &team, const Row<T> &row, Run run) {
  i64 n = vectors(row.body.bytes);
#pragma unroll 1
  for (i64 i = team.thread - (row.head.bytes > 0); i < n; i += team.size) run(i, row.lanes(i));
}

struct SoftmaxArgs {
  u64 input, output, gradient; // backward: of the output; 0: forward
  i64 rows, columns, team;
};

template <class T> DEVICE void softmax(const SoftmaxArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows; // all threads of a block go to its barriers
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), y(a.output, team.row, columns, x);
  float most = -3.4e38f, sum = 0;
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) most = larger(most, T::get(v, l));
  });
  most = team.max(most);
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += exponential(T::get(v, l) - most);
  });
  float scale = 1 / team.sum(sum);
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i), out;
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(out, l, exponential(T::get(v, l) - most) * scale);
    y.put(i, out);
  });
}

// The gradient of the input: y (g - sum of y g). input is y here.
template <class T> DEVICE void softmax_backward(const SoftmaxArgs &a) {
  Team team(a.team);
  i64 columns = team.row < a.rows ? a.columns : 0;
  Row<T> y(a.input, team.row, columns), g(a.gradient, team.row, columns, y), out(a.output, team.row, columns, y);
  float sum = 0;
  each<T>(team, y, [&](i64 i, int lanes) {
    Vector v = y.get(i), w = g.get(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += T::get(v, l) * T::get(w, l);
  });
  sum = team.sum(sum);
  each<T>(team, y, [&](i64 i, int lanes) {
    Vector v = y.get(i), w = g.get(i), r;
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(r, l, T::get(v, l) * (T::get(w, l) - sum));
    out.put(i, r);
  });
}

struct NormalizeArgs {
  u64 input, output, gradient;    // backward: of the output
  u64 weight, bias;               // a number a column, or none
  u64 mean, deviation;            // F32, a number a row, or none: mean and 1 / standard deviation
  i64 rows, columns, team;
  double epsilon;
};

// A number of a column, or another if there are none.
template <class T> DEVICE float column(u64 address, i64 i, float otherwise) {
  typedef typename T::bits bits;
  return address ? T::widen(load((const bits *)address + i)) : otherwise;
}

template <class T> DEVICE void normalize(const NormalizeArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows;
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), y(a.output, team.row, columns, x);
  float sum = 0, squares = 0;
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) sum += T::get(v, l);
  });
  float mean = team.sum(sum) / (float)a.columns;
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) {
      float d = T::get(v, l) - mean;
      if (l < lanes) squares += d * d;
    }
  });
  float deviation = reciprocal_root(team.sum(squares) / (float)a.columns + (float)a.epsilon);
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i), out;
    i64 c = x.column(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) {
      float r = (T::get(v, l) - mean) * deviation;
      if (l < lanes) r = r * column<T>(a.weight, c + l, 1) + column<T>(a.bias, c + l, 0);
      T::set(out, l, r);
    }
    y.put(i, out);
  });
  if (in && team.thread == 0) {
    if (a.mean) store((u32 *)a.mean + team.row, f32_bits(mean));
    if (a.deviation) store((u32 *)a.deviation + team.row, f32_bits(deviation));
  }
}

// The gradient of the input, from mean and deviation as forward left them.
template <class T> DEVICE void normalize_backward(const NormalizeArgs &a) {
  Team team(a.team);
  bool in = team.row < a.rows;
  i64 columns = in ? a.columns : 0;
  Row<T> x(a.input, team.row, columns), g(a.gradient, team.row, columns, x), out(a.output, team.row, columns, x);
  float mean = in ? bits_f32(load((const u32 *)a.mean + team.row)) : 0;
  float deviation = in ? bits_f32(load((const u32 *)a.deviation + team.row)) : 0;
  float sum = 0, product = 0;
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i), w = g.get(i);
    i64 c = x.column(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++)
      if (l < lanes) {
        float d = T::get(w, l) * column<T>(a.weight, c + l, 1);
        sum += d;
        product += d * (T::get(v, l) - mean) * deviation;
      }
  });
  sum = team.sum(sum) / (float)a.columns;
  product = team.sum(product) / (float)a.columns;
  each<T>(team, x, [&](i64 i, int lanes) {
    Vector v = x.get(i), w = g.get(i), r;
    i64 c = x.column(i);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) {
      float d = T::get(w, l) * (l < lanes ? column<T>(a.weight, c + l, 1) : 0);
      T::set(r, l, deviation * (d - sum - (T::get(v, l) - mean) * deviation * product));
    }
    out.put(i, r);
  });
}

KERNEL(softmax_f32, 256, 4, SoftmaxArgs) { softmax<f32>(a); }
KERNEL(softmax_f16, 256, 4, SoftmaxArgs) { softmax<f16>(a); }
KERNEL(softmax_bf16, 256, 4, SoftmaxArgs) { softmax<bf16>(a); }

KERNEL(softmax_backward_f32, 256, 4, SoftmaxArgs) { softmax_backward<f32>(a); }
KERNEL(softmax_backward_f16, 256, 4, SoftmaxArgs) { softmax_backward<f16>(a); }
KERNEL(softmax_backward_bf16, 256, 4, SoftmaxArgs) { softmax_backward<bf16>(a); }

KERNEL(normalize_f32, 256, 4, NormalizeArgs) { normalize<f32>(a); }
KERNEL(normalize_f16, 256, 4, NormalizeArgs) { normalize<f16>(a); }
KERNEL(normalize_bf16, 256, 4, NormalizeArgs) { normalize<bf16>(a); }

KERNEL(normalize_backward_f32, 256, 4, NormalizeArgs) { normalize_backward<f32>(a); }
KERNEL(normalize_backward_f16, 256, 4, NormalizeArgs) { normalize_backward<f16>(a); }
KERNEL(normalize_backward_bf16, 256, 4, NormalizeArgs) { normalize_backward<bf16>(a); }
