package peft

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vprof/vprof/models/nn"
)

// LLaMA-Adapter puts tokens of its own at the attention of the last layers.

// lookedUp returns the embeddings as they are.
func (s *Site) lookedUp(f *frame, ids *tensor) *tensor { return f.Call(s.BaseLayer, ids) }

// Attention is an attention module that takes a prompt of LLaMA-Adapter.
type Attention interface{ AddPrompt(p *Prompt) }

// Prompt has tokens [1, tokens, width] that a layer attends to besides the row, and a gate [1] for what comes of it.
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
