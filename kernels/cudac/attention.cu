// Attention: softmax(Q K^T scale) V for each head, without the matrix between.
#include "mma.cuh"

struct AttentionArgs {
  u64 query, key, value, output; // [head][position][depth]
  i64 queries, keys, depth, heads;
  double scale;
  i64 type; // attention_any
};

const float least = -3e38f;

#if ARCH >= 750

// Tensor cores: a warp has 16 queries, a block 64; keys come by 64. Depth is
// up to 128, a multiple of 8. In shared memory lie queries, keys and values,
// with lines of 256 bytes whose chunks are swizzled.
const int attention_lines = 64, attention_tile = attention_lines * 256;

DEVICE int swizzled(int line, int chunk) { return line * 256 + ((chunk ^ (line & 7)) << 4); }

// Lines past the last and chunks past the depth are zero.
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

DEVICE void arrived() {
#if ARCH >= 800
  close_group();
  wait_groups<0>();
#endif
  sync();
}

template <class T> DEVICE void attention(const AttentionArgs &a) {
  char *q = shared_memory(), *k = q + attention_tile, *v = k + attention_tile;
  int depth = (int)a.depth, keys = (int)a.keys, size = 2;
  i64 head = blockIdx.y + (i64)blockIdx.z * gridDim.y, first = (i64)blockIdx.x * attention_lines;
  if (head >= a.heads) return;
  u64 key = a.key + head * a.keys * depth * size, value = a.value + head * a.keys * depth * size;
  bring_lines(q, a.query + head * a.queries * depth * size, first, a.queries, depth);
  // Lane 4g+t holds columns 2t and 2t+1 of rows g and g+8 of each 16 by 8.
  float out[16][4], most[2] = {least, least}, sum[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) out[i][j] = 0;
  int l = lane() & 7, low = lane() >> 3 & 1, high = lane() >> 4, own = warp() * 16;
  float scale = (float)a.scale * 1.44269504f; // for powers of two
#pragma unroll 1
  for (int begin = 0; begin < keys; begin += attention_lines) {
    sync();
    bring_lines(k, key, begin, keys, depth);
    bring_lines(v, value, begin, keys, depth);
    arrived();
    float s[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) s[i][j] = 0;
#pragma unroll
    for (int d = 0; d < 8; d++) {
      if (16 * d >= depth) continue;
      u32 x[4];
      load_matrices(x, shared_at(q + swizzled(own + 8 * low + l, 2 * d + high)));
#pragma unroll
      for (int n = 0; n < 4; n++) {
        u32 y[4];
        load_matrices(y, shared_at(k + swizzled(16 * n + 8 * high + l, 2 * d + low)));
        multiply_fragments(T(), s[2 * n], x, y[0], y[1]);
        multiply_fragments(T(), s[2 * n + 1], x, y[2], y[3]);
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
#pragma unroll
    for (int n = 0; n < 4; n++) {
      u32 x[4] = {T::pair(s[2 * n][0], s[2 * n][1]), T::pair(s[2 * n][2], s[2 * n][3]), T::pair(s[2 * n + 1][0], s[2 * n + 1][1]),
                  T::pair(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < 8; d++) {
        if (16 * d >= depth) continue;
        u32 y[4];
        load_matrices_transposed(y, shared_at(v + swizzled(16 * n + 8 * low + l, 2 * d + high)));
        multiply_fragments(T(), out[2 * d], x, y[0], y[1]);
        multiply_fragments(T(), out[2 * d + 1], x, y[2], y[3]);
      }
    }
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
#if ARCH >= 800
  wait_groups<0>();
#endif
}

KERNEL(attention_f16, 128, 2, AttentionArgs) { attention<f16>(a); }
#if ARCH >= 800
KERNEL(attention_bf16, 128, 2, AttentionArgs) { attention<bf16>(a); }
#endif

#endif

// Any type and any depth up to 256: a warp has a query, a lane up to eight of
// its elements.
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
