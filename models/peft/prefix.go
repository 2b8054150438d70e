package peft

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Methods that train keys and values of tokens before each row, which the model finds in
// its cache.

// AtCache tells whether the method fills the cache of keys and values.
func (c Config) AtCache() bool { return c.method.atCache }

// CachedTokens returns how many tokens the adapters of a case put into the cache before each row; zero
// of most, and of options that [NewConfig] or [AdaptEmbeddings] refuse.
func CachedTokens(l *models.LoRA) int64 {
	if l == nil || methods[l.Method] == nil || !methods[l.Method].atCache {
		return 0
	}
	n, err := strconv.ParseInt(l.Options["num_virtual_tokens"], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// keys returns what the cache keeps of each token.
func (s *Site) keys() Keys { return s.BaseLayer.(*table).keys }

// perToken returns how many elements the cache has of a token.
func (k Keys) perToken() int64 { return 2 * k.Layers * k.Heads * k.Size }

// cachedTokens returns the number of virtual tokens, for which peft has no default.
func (s *Site) cachedTokens() (int64, error) {
	n, err := strconv.ParseInt(s.text("num_virtual_tokens"), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("num_virtual_tokens=%s: say how many tokens are before each row, as in "+
			"num_virtual_tokens=20",
			s.text("num_virtual_tokens"))
	}
	return n, nil
}

func (s *Site) addPrefix() error {
	n, err := s.cachedTokens()
	if err != nil {
		return err
	}
	k := s.keys()
	if !s.on("prefix_projection") {
		s.weight("embedding", n, k.perToken())
		return nil
	}
	width := k.Heads * k.Size
	hidden, err := strconv.ParseInt(s.text("encoder_hidden_size"), 10, 64)
	if err != nil || hidden < 1 {
		return fmt.Errorf("encoder_hidden_size=%s: prefix_projection=true needs it", s.text("encoder_hidden_size"))
	}
	s.weight("embedding", n, width)
	s.weight("transform.0.weight", hidden, width)
	s.weight("transform.0.bias", hidden)
	s.weight("transform.2.weight", k.perToken(), hidden)
	s.weight("transform.2.bias", k.perToken())
	return nil
}

func (s *Site) addCartridge() error {
	n, err := s.cachedTokens()
	if err != nil {
		return err
	}
	frozen := s.count("num_frozen_tokens")
	if frozen < 0 || frozen >= n {
		return fmt.Errorf("num_frozen_tokens=%d leaves none of %d virtual tokens to train", frozen, n)
	}
	if frozen > 0 {
		s.Own.Buffer(trace.F32, frozen, s.keys().perToken())
	}
	s.weight("trainable_embedding", n-frozen, s.keys().perToken())
	return nil
}

// lookedUp returns the embeddings as they are.
func (s *Site) lookedUp(f *frame, ids *tensor) *tensor { return f.Call(s.BaseLayer, ids) }

// Past follows get_prompt: keys and values of the virtual tokens of some rows, of one layer after the other.
func (s *Site) Past(f *frame, rows int64) (pairs []*tensor) {
	g, n, k := f.FuncFrame(), s.count("num_virtual_tokens"), s.keys()
	if whole := s.frozenAndTrained(); whole != nil {
		g.Discard(whole) // of which the device was asked
	}
	tokens := g.Let(g.Tape().New("to_device", program.Temporaries, trace.I64, rows, n))
	past := g.Let(s.encoded(g, tokens))
	g.Set(&past, past.To(s.BaseType()))
	g.Set(&past, past.View(rows, n, 2*k.Layers, k.Heads, k.Size))
	layers := g.LetAll(past.Permute(2, 0, 3, 1, 4).Split(2, 0))
	for _, layer := range layers {
		pairs = append(pairs, layer.Slice(0, 0, 2).Unbind(0)...)
	}
	g.End(pairs...)
	return pairs
}

// frozenAndTrained follows CartridgeEncoder.weight; nil of prefix tuning.
func (s *Site) frozenAndTrained() *tensor {
	switch trained := "trainable_embedding"; {
	case !s.has(trained):
		return nil
	case len(s.Own.Buffers()) == 0:
		return s.w(trained)
	default:
		return trace.Cat(0, s.Own.Held(0), s.w(trained))
	}
}

// encoded returns the forward pass of the encoder.
func (s *Site) encoded(f *frame, tokens *tensor) *tensor {
	if whole := s.frozenAndTrained(); whole != nil {
		return whole.Unsqueeze(0).Expand(tokens.Size(0), whole.Size(0), whole.Size(1))
	}
	g := f.CallFrame(tokens)
	past := g.Let(tokens.Embedding(s.w("embedding")))
	if s.on("prefix_projection") {
		hidden := past.Linear(s.w("transform.0.weight"), s.w("transform.0.bias")).Tanh()
		past = g.Let(hidden.Linear(s.w("transform.2.weight"), s.w("transform.2.bias")))
	}
	return g.Return(past)
}

// Attention is an attention module that takes a prompt of LLaMA-Adapter.
type Attention interface{ AddPrompt(p *Prompt) }

// Prompt has tokens [1, tokens, width] that a layer attends to besides the row, and a gate [1] for what
// comes of it.
type Prompt struct{ Weight, Gate *nn.Parameter }

// Tokens returns the number of tokens.
func (p *Prompt) Tokens() int64 { return p.Weight.Dims[1] }

// addPrompts puts a prompt at each of the last layers, in the type of the weights.
func (s *Site) addPrompts() error {
	all := s.BaseLayer.(*table).attentions
	if len(all) == 0 {
		return errors.New("peft 0.21 raises there: it puts adaption prompts at llama, mistral and gpt2, of which " +
			"vprof has rules for the first two")
	}
	numbers := map[string]int64{}
	for _, key := range []string{"adapter_len", "adapter_layers"} {
		n, err := strconv.ParseInt(s.text(key), 10, 64)
		if err != nil || n < 1 || key == "adapter_layers" && n > int64(len(all)) {
			return fmt.Errorf("%s=%s: say the tokens of a prompt and how many of the last layers, of %d, have one, as "+
				"in adapter_len=10,adapter_layers=2", key, s.text(key), len(all))
		}
		numbers[key] = n
	}
	for i, a := range all[int64(len(all))-numbers["adapter_layers"]:] {
		prompt, gate := fmt.Sprint("adaption_prompt", i), fmt.Sprint("adaption_gate", i)
		s.weight(prompt, 1, numbers["adapter_len"], s.out)
		s.weight(gate, 1)
		p := &Prompt{s.parameter(prompt), s.parameter(gate)}
		p.Weight.DType, p.Gate.DType = s.BaseType(), s.BaseType()
		a.AddPrompt(p)
	}
	return nil
}
