package tower

import (
	"github.com/vprof/vprof/models/nn"
)

// inverted is a block of MobileNet-V5: convolutions of each channel before and between those
// across channels, as large as the kernels say, zero for none.
type inverted struct{ start, mid, expand, out int64 }

// queried is multi-query attention of MobileNet-V5: as many heads of a width, and how much
// smaller keys and values are than queries.
type queried struct{ heads, size, smaller int64 }

// MobileNetV5 is mobilenetv5_300m_enc of timm, the tower for images of Gemma 3n.
func MobileNetV5() *nn.Parts {
	p := &nn.Parts{}
	m := p.In("timm_model")
	m.In("conv_stem").Add("conv", conv(3, 64, true, 3, 3)).Add("bn", scale(64))
	blocks, width := m.In("blocks"), int64(64)
	stage := func(at string, n int64, block func(b *nn.Parts, i int64)) {
		i := int64(0)
		layers(blocks.In(at), n, func(b *nn.Parts) {
			block(b, i)
			i++
		})
	}
	stage("0", 3, func(b *nn.Parts, _ int64) {
		b.Add("conv_exp", conv(width, 4*width, false, 3, 3)).Add("bn1", scale(4*width))
		b.Add("conv_pwl", conv(4*width, 128, false, 1, 1)).Add("bn2", scale(128))
		width = 128
	})
	stage("1", 5, func(b *nn.Parts, i int64) {
		width = inverted{start: 3 + 2*(i%2), mid: first(i, 5), expand: 4 + first(i, 2), out: 256}.add(b, width)
	})
	stage("2", 37, func(b *nn.Parts, i int64) {
		switch {
		case i < 8:
			width = inverted{start: 5, mid: first(i, 5), expand: 4 + first(i, 2), out: 640}.add(b, width)
		case i == 8:
			inverted{expand: 1, out: 640}.add(b, width)
		case i%2 == 1:
			queried{heads: 12, size: 64, smaller: 2}.add(b, width)
		default:
			inverted{expand: 2, out: 640}.add(b, width)
		}
	})
	stage("3", 39, func(b *nn.Parts, i int64) {
		switch {
		case i == 0:
			width = inverted{start: 5, mid: 5, expand: 6, out: 1280}.add(b, width)
		case i%2 == 1:
			queried{heads: 16, size: 96}.add(b, width)
		default:
			inverted{expand: 2, out: 1280}.add(b, width)
		}
	})
	f := m.In("msfa")
	ffn := f.In("ffn")
	const joined, inner, out = 640 + 1280, 2 * (640 + 1280), 2048
	pointwise(ffn, "pw_exp", joined, inner)
	pointwise(ffn, "pw_proj", inner, out)
	f.Add("norm", scale(out))
	return p
}

// first is n for the first block of a stage.
func first(i, n int64) int64 {
	if i == 0 {
		return n
	}
	return 0
}

// pointwise adds a convolution across channels with its norm.
func pointwise(p *nn.Parts, name string, in, out int64) {
	p.In(name).Add("conv", conv(in, out, false, 1, 1)).Add("bn", scale(out))
}

func (u inverted) add(p *nn.Parts, in int64) (out int64) {
	own := func(name string, channels, kernel int64) {
		if kernel > 0 {
			p.In(name).Add("conv", depthwise(channels, kernel, kernel)).Add("bn", scale(channels))
		}
	}
	own("dw_start", in, u.start)
	pointwise(p, "pw_exp", in, u.expand*in)
	own("dw_mid", u.expand*in, u.mid)
	pointwise(p, "pw_proj", u.expand*in, u.out)
	p.In("layer_scale").Own("gamma", u.out)
	return u.out
}

func (q queried) add(p *nn.Parts, width int64) {
	a := p.Add("norm", scale(width)).In("attn")
	a.In("query").Add("proj", conv(width, q.heads*q.size, false, 1, 1))
	for _, name := range []string{"key", "value"} {
		k := a.In(name)
		if q.smaller > 1 {
			k.Add("down_conv", depthwise(width, 3, 3)).Add("norm", scale(width))
		}
		k.Add("proj", conv(width, q.size, false, 1, 1))
	}
	a.In("output").Add("proj", conv(q.heads*q.size, width, false, 1, 1))
	p.In("layer_scale").Own("gamma", width)
}
