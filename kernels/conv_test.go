package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

// products calls visit with the place of every input, weight and output that are multiplied and added in a convolution.
func products(k kernels.Conv, visit func(in, weight, out int64)) {
	channels, outChannels := k.Channels/k.Groups, k.OutChannels/k.Groups
	for o := range k.Images * k.OutHeight() * k.OutWidth() * k.OutChannels {
		co, ox, oy := o%k.OutChannels, o/k.OutChannels%k.OutWidth(), o/k.OutChannels/k.OutWidth()%k.OutHeight()
		image, group := o/k.OutChannels/k.OutWidth()/k.OutHeight(), co/outChannels
		for tap := range k.TapsY * k.TapsX {
			y, x := oy*k.StrideY-k.PadY+tap/k.TapsX*k.DilationY, ox*k.StrideX-k.PadX+tap%k.TapsX*k.DilationX
			if y < 0 || x < 0 || y >= k.Height || x >= k.Width {
				continue
			}
			for c := range channels {
				visit(((image*k.Height+y)*k.Width+x)*k.Channels+group*channels+c,
					(co*k.TapsY*k.TapsX+tap)*channels+c, o)
			}
		}
	}
}

// drawConv returns a convolution with an output of one pixel at least.
func drawConv(t *rapid.T) kernels.Conv {
	k := kernels.Conv{Type: rapid.SampledFrom(types).Draw(t, "type"), TF32: rapid.Bool().Draw(t, "TF32")}
	one := func(most int64, label string) int64 { return rapid.Int64Range(1, most).Draw(t, label) }
	k.Images, k.Groups = one(2, "images"), one(2, "groups")
	k.TapsY, k.TapsX, k.StrideY, k.StrideX = one(3, "taps"), one(4, "taps"), one(3, "stride"), one(2, "stride")
	k.DilationY, k.DilationX = one(2, "dilation"), one(3, "dilation")
	k.PadY, k.PadX = rapid.Int64Range(0, 2).Draw(t, "pad"), rapid.Int64Range(0, 3).Draw(t, "pad")
	k.Height = max(one(9, "height"), k.DilationY*(k.TapsY-1)+1-2*k.PadY)
	k.Width = max(one(9, "width"), k.DilationX*(k.TapsX-1)+1-2*k.PadX)
	channels := rapid.SampledFrom([]int64{8, 8, 16, 24}) // in all types multiples of 16 bytes
	k.Channels, k.OutChannels = k.Groups*channels.Draw(t, "channels"), k.Groups*channels.Draw(t, "out channels")
	return k
}

func checkConv(t failer, c *cpu, k kernels.Conv) {
	t.Helper()
	x := c.tensorOf(k.Type, k.Images*k.Height*k.Width*k.Channels, 1)
	w := c.tensorOf(k.Type, k.OutChannels*k.TapsY*k.TapsX*(k.Channels/k.Groups), 2)
	y := c.tensorOf(k.Type, k.Images*k.OutHeight()*k.OutWidth()*k.OutChannels, 3)
	k.Input, k.Weight, k.Output = x.addr(), w.addr(), y.addr()

	xs, ws, gs := x.get(k.Type), w.get(k.Type), y.get(k.Type)
	ys, gx, gw := make([]float64, len(gs)), make([]float64, len(xs)), make([]float64, len(ws))
	products(k, func(in, weight, out int64) {
		ys[out] += xs[in] * ws[weight]
		gx[in] += gs[out] * ws[weight]
		gw[weight] += gs[out] * xs[in]
	})
	// Gradients go where the original was: the last computed may overwrite it.
	c.run(k.WeightGradient(c.arch))
	near(t, k.Type, gw, w.get(k.Type), "gradient of the weights")
	w.set(k.Type, func(i int) float64 { return ws[i] })
	c.run(k.InputGradient(c.arch))
	near(t, k.Type, gx, x.get(k.Type), "gradient of the input")
	x.set(k.Type, func(i int) float64 { return xs[i] })
	c.run(k.Forward(c.arch))
	near(t, k.Type, ys, y.get(k.Type), "output")
}

func TestConvAndItsGradients(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) { checkConv(t, c, drawConv(t)) })
}

func TestConvOverSeveralTilesAndShares(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		for i, typ := range types {
			k := kernels.Conv{
				Type: typ, TF32: true, Images: 1, Height: 24, Width: 23, Channels: 16, OutChannels: 136, Groups: 1,
				TapsY: 3, TapsX: 1, StrideY: 1, StrideX: 1, PadY: 1, DilationY: 1, DilationX: 1,
			}
			k.Channels -= 8 * int64(i%2)
			require.EqualValues(t, 2*2, k.WeightGradient(c.arch).Grid[0], "tiles times shares")
			checkConv(t, c, k)
		}
	})
}

// A convolution of one tap is a product of matrices, and each of its gradients is one. Three of the four combinations
// of transposed operands occur.
func TestConvOfOneTapIsAProduct(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		checkConv(t, c, kernels.Conv{
			Type: kernels.F16, Images: 1, Height: 1, Width: 70, Channels: 24, OutChannels: 40, Groups: 1,
			TapsY: 1, TapsX: 1, StrideY: 1, StrideX: 1, DilationY: 1, DilationX: 1,
		})
	})
}
