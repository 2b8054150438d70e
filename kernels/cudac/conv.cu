// Convolutions in two dimensions as products of matrices that are not stored: a view computes the address of each
// element. The layout is channels last: images are [image][y][x][channel], weights [output channel][y][x][input
// channel].
#include "product.cuh"

// Division of numbers below 2^31 by a number known before the launch.
struct Divisor {
  u64 magic_shift;
  METHOD int divide(int n) const { return (int)((high_product((u32)n, (u32)magic_shift) + (u32)n) >> (int)(magic_shift >> 32)); }
};

// Channel counts are per group. The batch of the tiling is the number of groups.
struct ConvArgs {
  u64 input, weight, output;
  i64 images, height, width, channels;
  i64 out_height, out_width, out_channels;
  i64 taps_y, taps_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  Divisor by_height, by_width, by_channels, by_out_height, by_out_width, by_out_channels, by_taps_x, by_stride_y, by_stride_x;
  Tiling tiling;
};

// The base of the views.
struct ConvView {
  const ConvArgs &a;
  int group, size; // size: bytes of an element
  METHOD ConvView(const ConvArgs &a, int group, int size) : a(a), group(group), size(size) {}
  METHOD int input_pitch() const { return (int)(a.channels * a.tiling.batch); }
  METHOD int output_pitch() const { return (int)(a.out_channels * a.tiling.batch); }
  METHOD int taps() const { return (int)(a.taps_y * a.taps_x); }
  METHOD const u8 *input() const { return (const u8 *)a.input + group * a.channels * size; }
  METHOD const u8 *output() const { return (const u8 *)a.output + group * a.out_channels * size; }
  METHOD u64 weight() const { return a.weight + group * a.out_channels * taps() * a.channels * size; }
};

DEVICE bool within(int i, i64 n) { return (u32)i < (u32)n; }

// Forward: a row for each output position, with the inputs under its filter as depth, ordered by (tap, channel).
struct Patches : ConvView {
  static const bool along_depth = true;
  struct Place {
    int p; // offset of pixel (y, x), which may be outside the image, from the input, in units of 16 bytes
    int y, x;
  };
  METHOD Patches(const ConvArgs &a, int group, int size) : ConvView(a, group, size) {}
  METHOD Place place(int i) const {
    if (i >= (int)a.tiling.m) return Place{0, -1 << 30, 0};
    int line = a.by_out_width.divide(i), image = a.by_out_height.divide(line);
    int y = (line - image * (int)a.out_height) * (int)a.stride_y - (int)a.pad_y;
    int x = (i - line * (int)a.out_width) * (int)a.stride_x - (int)a.pad_x;
    return Place{(int)(((image * a.height + y) * a.width + x) * (input_pitch() * size / 16)), y, x};
  }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    int tap = a.by_channels.divide(k), channel = k - tap * (int)a.channels;
    int v = a.by_taps_x.divide(tap), u = tap - v * (int)a.taps_x;
    int dy = v * (int)a.dilation_y, dx = u * (int)a.dilation_x;
    valid = k < (int)a.tiling.k && within(p.y + dy, a.height) && within(p.x + dx, a.width) ? 16 : 0;
    return input() + (i64)(p.p + (dy * (int)a.width + dx) * (input_pitch() * size / 16)) * 16 + channel * size;
  }
};

// Gradient of the input: a row for each input position, with the gradients of the outputs that it contributes to as
// depth, ordered by (tap, output channel).
struct Spread : ConvView {
  static const bool along_depth = true;
  struct Place {
    const u8 *p; // the image
    int y, x;
  };
  METHOD Spread(const ConvArgs &a, int group, int size) : ConvView(a, group, size) {}
  METHOD Place place(int i) const {
    if (i >= (int)a.tiling.m) return Place{output(), -1 << 30, 0};
    int line = a.by_width.divide(i), image = a.by_height.divide(line);
    int y = line - image * (int)a.height + (int)a.pad_y, x = i - line * (int)a.width + (int)a.pad_x;
    return Place{output() + image * a.out_height * a.out_width * output_pitch() * size, y, x};
  }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    int tap = a.by_out_channels.divide(k), channel = k - tap * (int)a.out_channels;
    int v = a.by_taps_x.divide(tap), u = tap - v * (int)a.taps_x;
    int y = p.y - v * (int)a.dilation_y, x = p.x - u * (int)a.dilation_x;
    bool in = k < (int)a.tiling.k && y >= 0 && x >= 0;
    int oy = a.by_stride_y.divide(in ? y : 0), ox = a.by_stride_x.divide(in ? x : 0);
    in = in && oy * (int)a.stride_y == y && ox * (int)a.stride_x == x && oy < (int)a.out_height && ox < (int)a.out_width;
    valid = in ? 16 : 0;
    return p.p + ((i64)(oy * (int)a.out_width + ox) * output_pitch() + channel) * size;
  }
};

// Gradient of the input: the weights by input channel, with (tap, output channel) as depth.
struct Turned : ConvView {
  static const bool along_depth = false;
  struct Place {
    const u8 *p;
    int left;
  };
  METHOD Turned(const ConvArgs &a, int group, int size) : ConvView(a, group, size) {}
  METHOD Place place(int i) const {
    return Place{(const u8 *)weight() + i * size, larger(smaller(((int)a.channels - i) * size, 16), 0)};
  }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    int tap = a.by_out_channels.divide(k), channel = k - tap * (int)a.out_channels;
    valid = k < (int)a.tiling.k ? p.left : 0;
    return p.p + (i64)(channel * taps() + tap) * (int)a.channels * size;
  }
};

// Gradient of the weights: the output gradients by channel, with output positions as depth.
struct Channels : ConvView {
  static const bool along_depth = false;
  struct Place {
    const u8 *p;
    int left;
  };
  METHOD Channels(const ConvArgs &a, int group, int size) : ConvView(a, group, size) {}
  METHOD Place place(int i) const { return Place{output() + i * size, larger(smaller(((int)a.out_channels - i) * size, 16), 0)}; }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    valid = k < (int)a.tiling.k ? p.left : 0;
    return p.p + (i64)k * output_pitch() * size;
  }
};

// Gradient of the weights: the inputs by (tap, channel), with output positions as depth.
struct Windows : ConvView {
  static const bool along_depth = false;
  struct Place {
    const u8 *p; // the channel at pixel (0, 0)
    int y, x;
  };
  METHOD Windows(const ConvArgs &a, int group, int size) : ConvView(a, group, size) {}
  METHOD Place place(int i) const {
    if (i >= (int)a.tiling.n) return Place{input(), -1 << 30, 0};
    int tap = a.by_channels.divide(i), v = a.by_taps_x.divide(tap);
    int y = v * (int)a.dilation_y - (int)a.pad_y, x = (tap - v * (int)a.taps_x) * (int)a.dilation_x - (int)a.pad_x;
    return Place{input() + (i - tap * (int)a.channels) * size, y, x};
  }
  METHOD const u8 *at(const Place &p, int k, int &valid) const {
    int line = a.by_out_width.divide(k), image = a.by_out_height.divide(line);
    int y = (line - image * (int)a.out_height) * (int)a.stride_y + p.y;
    int x = (k - line * (int)a.out_width) * (int)a.stride_x + p.x;
    valid = k < (int)a.tiling.k && within(y, a.height) && within(x, a.width) ? 16 : 0;
    return p.p + ((i64)(image * (int)a.height + y) * (int)a.width + x) * input_pitch() * size;
  }
};

template <class E> DEVICE void conv_forward(const ConvArgs &a, const E &engine) {
  with_tile(a.tiling, [&](int group, int m0, int n0, const Share &s) {
    Patches x(a, group, engine.size);
    Rows w(x.weight(), a.tiling.k, a.tiling.n, a.tiling.k, engine.size);
    engine.product(x, w, Output{(u8 *)x.output(), x.output_pitch(), (int)a.tiling.m, (int)a.tiling.n}, m0, n0, s);
  });
}

template <class E> DEVICE void conv_input(const ConvArgs &a, const E &engine) {
  with_tile(a.tiling, [&](int group, int m0, int n0, const Share &s) {
    Spread g(a, group, engine.size);
    Turned w(a, group, engine.size);
    engine.product(g, w, Output{(u8 *)g.input(), g.input_pitch(), (int)a.tiling.m, (int)a.tiling.n}, m0, n0, s);
  });
}

template <class E> DEVICE void conv_weight(const ConvArgs &a, const E &engine) {
  with_tile(a.tiling, [&](int group, int m0, int n0, const Share &s) {
    Channels g(a, group, engine.size);
    Windows x(a, group, engine.size);
    engine.product(g, x, Output{(u8 *)g.weight(), a.tiling.n, (int)a.tiling.m, (int)a.tiling.n}, m0, n0, s);
  });
}

KERNEL(conv_forward_f32, Engine<f32>::block, 2, ConvArgs) { conv_forward(a, Engine<f32>()); }
KERNEL(conv_forward_f16, Engine<f16>::block, 2, ConvArgs) { conv_forward(a, Engine<f16>()); }
KERNEL(conv_forward_bf16, Engine<bf16>::block, 2, ConvArgs) { conv_forward(a, Engine<bf16>()); }
#if ARCH >= 800
KERNEL(conv_forward_tf32, Engine<tf32>::block, 2, ConvArgs) { conv_forward(a, Engine<tf32>()); }
#endif

KERNEL(conv_input_f32, Engine<f32>::block, 2, ConvArgs) { conv_input(a, Engine<f32>()); }
KERNEL(conv_input_f16, Engine<f16>::block, 2, ConvArgs) { conv_input(a, Engine<f16>()); }
KERNEL(conv_input_bf16, Engine<bf16>::block, 2, ConvArgs) { conv_input(a, Engine<bf16>()); }
#if ARCH >= 800
KERNEL(conv_input_tf32, Engine<tf32>::block, 2, ConvArgs) { conv_input(a, Engine<tf32>()); }
#endif

KERNEL(conv_weight_f32, Engine<f32>::block, 2, ConvArgs) { conv_weight(a, Engine<f32>()); }
KERNEL(conv_weight_f16, Engine<f16>::block, 2, ConvArgs) { conv_weight(a, Engine<f16>()); }
KERNEL(conv_weight_bf16, Engine<bf16>::block, 2, ConvArgs) { conv_weight(a, Engine<bf16>()); }
#if ARCH >= 800
KERNEL(conv_weight_tf32, Engine<tf32>::block, 2, ConvArgs) { conv_weight(a, Engine<tf32>()); }
#endif
