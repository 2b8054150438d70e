// Attention: softmax(Q K^T scale) V for each head, without storing the matrix of scores.
#include "mma.cuh"

struct AttentionArgs {
  u64 query, key, value, output; // [head][position][depth]
  i64 queries, keys, depth, heads;
  double scale;
  i64 type; // attention_any
};

const float least = -3e38f;

#if ARCH >= 750

// For tensor cores: a warp computes 16 queries and a block 64, over keys in tiles of 64. Depth is a multiple of 8, up
// to 128. Shared memory holds tiles of queries, keys and values with lines of 256 bytes, whose 16-byte chunks are
// swizzled.
const int attention_lines = 64, attention_tile = attention_lines * 256;

DEVICE int swizzled(int line, int chunk) { return line * 256 + ((chunk ^ (line & 7)) << 4); }

// bring_lines copies a tile to shared memory. Lines past count and chunks past the depth are zero.
DEVICE void bring_lines(char *to, u64 from, i64 first, i64 count, int depth) {
#pragma unroll 4
  for (int i = threadIdx.x; i < attention_lines * 16; i += 128) {
    int line = i / 16, chunk = i % 16;
    bool in = first + line < count && chunk * 8 < depth;
    const Vector *p = (const Vector *)(from + ((first + line) * depth + chunk * 8) * 2);
#if ARCH >= 800
    copy_async(shared_at(to + swizzled(line, chunk)), p, in ? 16 : 0);
#else
    Vector zero = {{0, 0, 0, 0}};
    *(Vector *)(to + swizzled(line, chunk)) = in ? load(p) : zero;
#endif
  }
}

DEVICE void close_lines() {
#if ARCH >= 800
  close_group();
#endif
}

// wait_lines waits until at most Pending closed groups of copies are incomplete.
template <int Pending> DEVICE void wait_lines() {
#if ARCH >= 800
  wait_groups<Pending>();
#endif
  sync();
}

// Shared memory holds three tiles. The first holds the queries, which are then kept in registers; after that the tiles
// hold keys, values and the next keys in turn. While one product is computed, the operand of the next is being copied
// (from sm_80 on).
template <class T> DEVICE void attention(const AttentionArgs &a) {
  char *k = shared_memory(), *v = k + attention_tile, *next = v + attention_tile;
  int depth = (int)a.depth, keys = (int)a.keys, size = 2;
  i64 head = blockIdx.y + (i64)blockIdx.z * gridDim.y, first = (i64)blockIdx.x * attention_lines;
  if (head >= a.heads) return;
  u64 key = a.key + head * a.keys * depth * size, value = a.value + head * a.keys * depth * size;
  bring_lines(next, a.query + head * a.queries * depth * size, first, a.queries, depth);
  close_lines();
  bring_lines(k, key, 0, keys, depth);
  close_lines();
  bring_lines(v, value, 0, keys, depth);
  close_lines();
  // Lane 4g+t holds columns 2t and 2t+1 of rows g and g+8 of each tile of 16 by 8.
  float out[16][4], most[2] = {least, least}, sum[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) out[i][j] = 0;
  int l = lane() & 7, low = lane() >> 3 & 1, high = lane() >> 4, own = warp() * 16;
  float scale = (float)a.scale * 1.44269504f; // for exponentials with base 2
  wait_lines<2>();
  u32 x[8][4];
#pragma unroll
  for (int d = 0; d < 8; d++)
    if (16 * d < depth) load_matrices(x[d], shared_at(next + swizzled(own + 8 * low + l, 2 * d + high)));
#pragma unroll 1
  for (int begin = 0; begin < keys; begin += attention_lines) {
    bool more = begin + attention_lines < keys;
    wait_lines<1>(); // the keys have arrived, and the tile next is free
    if (more) bring_lines(next, key, begin + attention_lines, keys, depth);
    close_lines();
    float s[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) s[i][j] = 0;
#pragma unroll
    for (int d = 0; d < 8; d++) {
      if (16 * d >= depth) continue;
#pragma unroll
      for (int n = 0; n < 4; n++) {
        u32 y[4];
        load_matrices(y, shared_at(k + swizzled(16 * n + 8 * high + l, 2 * d + low)));
        multiply_fragments(T(), s[2 * n], x[d], y[0], y[1]);
        multiply_fragments(T(), s[2 * n + 1], x[d], y[2], y[3]);
      }
    }
    float now[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        bool in = begin + 8 * i + lane() % 4 * 2 + j % 2 < keys;
        s[i][j] = in ? s[i][j] * scale : least;
        now[j / 2] = larger(now[j / 2], s[i][j]);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      now[h] = larger(now[h], shuffle_xor(now[h], 1));
      now[h] = larger(now[h], shuffle_xor(now[h], 2));
      float fade = power_of_two(most[h] - now[h]);
      most[h] = now[h];
      sum[h] *= fade;
#pragma unroll
      for (int i = 0; i < 16; i++) out[i][2 * h] *= fade, out[i][2 * h + 1] *= fade;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = power_of_two(s[i][j] - most[j / 2]);
        sum[j / 2] += s[i][j];
      }
    wait_lines<1>(); // the values have arrived, and the tile of keys is free
    if (more) bring_lines(k, value, begin + attention_lines, keys, depth);
    close_lines();
#pragma unroll
    for (int n = 0; n < 4; n++) {
      u32 p[4] = {T::pair(s[2 * n][0], s[2 * n][1]), T::pair(s[2 * n][2], s[2 * n][3]), T::pair(s[2 * n + 1][0], s[2 * n + 1][1]),
                  T::pair(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < 8; d++) {
        if (16 * d >= depth) continue;
        u32 y[4];
        load_matrices_transposed(y, shared_at(v + swizzled(16 * n + 8 * low + l, 2 * d + high)));
        multiply_fragments(T(), out[2 * d], p, y[0], y[1]);
        multiply_fragments(T(), out[2 * d + 1], p, y[2], y[3]);
      }
    }
    char *used = v;
    v = k, k = next, next = used;
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] += shuffle_xor(sum[h], 1);
    sum[h] += shuffle_xor(sum[h], 2);
    float share = 1 / sum[h];
    i64 row = first + own + lane() / 4 + 8 * h;
    if (row >= a.queries) continue;
    u8 *to = (u8 *)a.output + (head * a.queries + row) * depth * size;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      int column = 8 * i + lane() % 4 * 2;
      if (column < depth) store((u32 *)(to + column * size), T::pair(out[i][2 * h] * share, out[i][2 * h + 1] * share));
    }
  }
  wait_lines<0>();
}

KERNEL(attention_f16, 128, 2, AttentionArgs) { attention<f16>(a); }
#if ARCH >= 800
KERNEL(attention_bf16, 128, 2, AttentionArgs) { attention<bf16>(a); }
#endif

#endif

// For f32 cores, where tensor cores do not apply: tiles of 64 queries by 64 keys, 32 elements of the depth at a time,
// depth up to 128. A thread computes four queries with every sixteenth key of the scores, then pairs of columns of the
// output. Lines in shared memory have 36 floats for operands and 68 for weights, so that consecutive lines start in
// different bank groups.
const int scores_side = 64, scores_depth = 32, scores_line = 36, weights_line = 68;

// bring_numbers copies 64 lines as floats, scores_depth elements from column on. Elements past count and the depth are
// zero.
template <class T> DEVICE void bring_numbers(float *to, u64 from, i64 first, i64 count, int depth, int column) {
  typedef typename T::bits bits;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int line = threadIdx.x / 8 + 32 * i, at = threadIdx.x % 8 * 4;
    bool in = first + line < count && column + at < depth;
    const bits *p = (const bits *)from + (first + line) * depth + column + at;
    Vector v = {{0, 0, 0, 0}};
    if (in) {
      if constexpr (T::lanes == 4) {
        v = load((const Vector *)p);
      } else {
#pragma unroll
        for (int j = 0; j < 4; j++) v.w[j] = f32_bits(T::widen(load(p + j)));
      }
    }
    *(Vector *)(to + line * scores_line + at) = v;
  }
}

// Reductions over the 16 threads that compute the same queries.
DEVICE float sixteen_max(float x) {
#pragma unroll
  for (int m = 8; m; m >>= 1) x = larger(x, shuffle_xor(x, m));
  return x;
}
DEVICE float sixteen_sum(float x) {
#pragma unroll
  for (int m = 8; m; m >>= 1) x += shuffle_xor(x, m);
  return x;
}

template <class T> DEVICE void attention_on_cores(const AttentionArgs &a) {
  const int side = scores_side;
  float *q = (float *)shared_memory(), *k = q + side * scores_line, *weights = k + side * scores_line;
  const i64 size = sizeof(typename T::bits);
  int depth = (int)a.depth, keys = (int)a.keys, row = threadIdx.x / 16 * 4, column = threadIdx.x % 16;
  i64 head = blockIdx.y + (i64)blockIdx.z * gridDim.y, first = (i64)blockIdx.x * side;
  if (head >= a.heads) return;
  u64 query = a.query + head * a.queries * depth * size, key = a.key + head * a.keys * depth * size;
  u64 value = a.value + head * a.keys * depth * size;
  float out[4][8], most[4], sum[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    most[i] = least, sum[i] = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) out[i][j] = 0;
  }
#pragma unroll 1
  for (int begin = 0; begin < keys; begin += side) {
    float s[4][4];
#pragma unroll
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0;
#pragma unroll 1
    for (int d = 0; d < depth; d += scores_depth) {
      sync();
      bring_numbers<T>(q, query, first, a.queries, depth, d);
      bring_numbers<T>(k, key, begin, keys, depth, d);
      sync();
#pragma unroll
      for (int e = 0; e < scores_depth; e += 4) {
        Vector x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          x[i] = *(const Vector *)(q + (row + i) * scores_line + e);
          y[i] = *(const Vector *)(k + (column + 16 * i) * scores_line + e);
        }
#pragma unroll
        for (int i = 0; i < 16; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) s[i / 4][i % 4] = fused(bits_f32(x[i / 4].w[j]), bits_f32(y[i % 4].w[j]), s[i / 4][i % 4]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float now = most[i], part = 0;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = begin + column + 16 * j < keys ? s[i][j] * (float)a.scale : least;
        now = larger(now, s[i][j]);
      }
      now = sixteen_max(now);
      float fade = exponential(most[i] - now);
      most[i] = now;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float weight = begin + column + 16 * j < keys ? exponential(s[i][j] - now) : 0;
        weights[(row + i) * weights_line + column + 16 * j] = weight;
        part += weight;
      }
      sum[i] = sum[i] * fade + sixteen_sum(part);
#pragma unroll
      for (int j = 0; j < 8; j++) out[i][j] *= fade;
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
      if (c * scores_depth >= depth) continue;
      sync();
      bring_numbers<T>(k, value, begin, keys, depth, c * scores_depth);
      sync();
#pragma unroll 4
      for (int e = 0; e < side; e += 4) {
        Vector x[4];
        float y[4][2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          x[i] = *(const Vector *)(weights + (row + i) * weights_line + e);
          const float *p = k + (e + i) * scores_line + 2 * column;
          y[i][0] = p[0], y[i][1] = p[1];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) {
            out[i][2 * c] = fused(bits_f32(x[i].w[j]), y[j][0], out[i][2 * c]);
            out[i][2 * c + 1] = fused(bits_f32(x[i].w[j]), y[j][1], out[i][2 * c + 1]);
          }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    i64 line = first + row + i;
    if (line >= a.queries) continue;
    typename T::bits *to = (typename T::bits *)a.output + (head * a.queries + line) * depth;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      int at = j / 2 * scores_depth + 2 * column + j % 2;
      if (at < depth) store(to + at, T::narrow(out[i][j] / sum[i]));
    }
  }
}

KERNEL(attention_f32, 256, 2, AttentionArgs) { attention_on_cores<f32>(a); }
#if ARCH < 750
KERNEL(attention_f16, 256, 2, AttentionArgs) { attention_on_cores<f16>(a); }
#endif
#if ARCH < 800
KERNEL(attention_bf16, 256, 2, AttentionArgs) { attention_on_cores<bf16>(a); }
#endif

// Any type, depth up to 256: a warp computes one query, a lane up to eight elements of it.
KERNEL(attention_any, 256, 2, AttentionArgs) {
  int type = (int)a.type, size = number_size(type), depth = (int)a.depth;
  i64 row = (i64)blockIdx.x * 8 + warp(), head = blockIdx.y + (i64)blockIdx.z * gridDim.y;
  if (row >= a.queries || head >= a.heads) return;
  const u8 *query = (const u8 *)a.query + (head * a.queries + row) * depth * size;
  const u8 *key = (const u8 *)a.key + head * a.keys * depth * size, *value = (const u8 *)a.value + head * a.keys * depth * size;
  float q[8], out[8], most = least, sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int d = lane() + 32 * i;
    q[i] = d < depth ? load_number(query + d * size, type) * (float)a.scale : 0;
    out[i] = 0;
  }
#pragma unroll 1
  for (i64 j = 0; j < a.keys; j++, key += depth * size, value += depth * size) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (lane() + 32 * i < depth) s += q[i] * load_number(key + (lane() + 32 * i) * size, type);
    s = warp_sum(s);
    float now = larger(most, s), fade = exponential(most - now), weight = exponential(s - now);
    most = now;
    sum = sum * fade + weight;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (lane() + 32 * i < depth) out[i] = out[i] * fade + weight * load_number(value + (lane() + 32 * i) * size, type);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int d = lane() + 32 * i;
    if (d < depth) store_number((u8 *)a.output + ((head * a.queries + row) * depth + d) * size, type, out[i] / sum);
  }
}
