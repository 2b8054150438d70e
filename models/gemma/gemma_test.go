package gemma_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/gemma"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
)

const (
	vocab, width, heads = 512, 64, 4
	headSize, inner     = 16, 96
)

// config returns a small Gemma 4 with a number of layers.
func config(n int) gemma.Config {
	c := gemma.Config{Vocab: vocab, Width: width, Heads: heads, Window: 16, Activation: "gelu_pytorch_tanh", Tied: true}
	for range n {
		c.Layers = append(c.Layers, gemma.Layer{HeadSize: headSize, KVHeads: 2, Inner: inner})
	}
	return c
}

func parameters(c gemma.Config) (n int64) {
	for _, w := range nn.NewTree(gemma.CausalLM(c, hf.Text{SequenceOptions: hf.SequenceOptions{Length: 8}}).Model()).Parameters {
		n += w.Numel()
	}
	return n
}

// What options of a configuration add to its parameters or take from them.
func TestParametersOfOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(c *gemma.Config)
		more int64
	}{
		"an output layer of its own": {func(c *gemma.Config) { c.Tied = false }, vocab * width},
		"a wider feed-forward half":  {func(c *gemma.Config) { c.Layers[1].Inner *= 2 }, 3 * width * inner},
		"biases of projections": {
			func(c *gemma.Config) { c.Bias = true },
			2 * (heads*headSize + 2*2*headSize + width),
		},
		"keys for values": {
			func(c *gemma.Config) { c.KeysAreValues = true },
			-2 * width * 2 * headSize,
		},
		"keys of an earlier layer": {
			func(c *gemma.Config) { c.Layers[0].Stores, c.Layers[1].Shares = true, true },
			-2*width*2*headSize - headSize, // and the norm of keys
		},
		"one layer less": {
			func(c *gemma.Config) { c.Layers = c.Layers[:1] },
			-(2*width*heads*headSize + 2*width*2*headSize + 3*width*inner + 4*width + 2*headSize),
		},
	} {
		c := config(2)
		tc.set(&c)
		require.Equal(t, tc.more, parameters(c)-parameters(config(2)), name)
	}
}

// Layers alike have as many parameters as each other, whatever attention serves them.
func TestLayersAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "layers")
		one, more := config(n), config(n+1)
		each := parameters(more) - parameters(one)
		require.Equal(rt, parameters(config(2))-parameters(config(1)), each)
		more.Flash, more.Liger = rapid.Bool().Draw(rt, "flash"), rapid.Bool().Draw(rt, "liger")
		more.Eager = !more.Flash
		require.Equal(rt, each, parameters(more)-parameters(one))
	})
}
