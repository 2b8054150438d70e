package peft

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// Methods that adapt the input embeddings: virtual tokens before each sequence, and trained rows of embeddings.

// embeddingTable is the input embeddings as the base layer of an adapter.
type embeddingTable struct {
	nn.Module
	Embeddings *nn.Embedding `torch:""`
	attentions []Attention
}

// Words holds the modules of a model that methods at the input embeddings change.
type Words struct {
	Embeddings *nn.Embedding
	// Output is the layer that computes logits.
	Output nn.Layer
	// Attentions are the attention modules that LLaMA-Adapter can extend; none if peft does not support the model.
	Attentions []Attention
}

// Widths returns the number of tokens in the vocabulary and the embedding width.
func (t *embeddingTable) Widths() (in, out int64) {
	return t.Embeddings.Weight.Dims[0], t.Embeddings.Weight.Dims[1]
}

func (t *embeddingTable) AdapterType() trace.DType { return t.Embeddings.Weight.DType }

// Forward maps a tensor of indices to the embeddings' rows.
func (t *embeddingTable) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return f.Call(t.Embeddings, x)
}

// AtEmbeddings reports whether the method adapts the input embeddings instead of linear layers.
func (c Config) AtEmbeddings() bool { return c.method.atEmbeddings }

// ForLanguageModels reports whether the method is recorded only in language models without packed sequences.
func (c Config) ForLanguageModels() bool { return c.method.name != "trainable_tokens" }

// AdaptEmbeddings records peft.get_peft_model with a method at the input embeddings of a frozen model. It replaces the
// embeddings, and an output layer that shares their weight. The error names an unsupported option.
func AdaptEmbeddings(model any, c Config, w Words) (*AdaptedLayer, error) {
	t := &embeddingTable{Embeddings: w.Embeddings, attentions: w.Attentions}
	s, err := newAdaptedLayer(t, c, "")
	if err != nil {
		return nil, err
	}
	places := nn.FieldsHolding(model, w.Embeddings)
	if len(places) == 0 {
		return nil, errors.New("vprof cannot apply this method of peft to the model's embeddings; name other layers " +
			"with target=, or run your own script with \"vprof run\"")
	}
	for _, p := range places {
		*p = s
	}
	if l, ok := w.Output.(*nn.Linear); ok && l.Weight == w.Embeddings.Weight && s.has("trainable_tokens_delta") {
		for _, p := range nn.FieldsHolding(model, w.Output) {
			*p = &tiedOutput{BaseLayer: l, embeddings: s}
		}
	}
	return s, nil
}

// VirtualTokens returns the number of tokens that the method adds before each sequence.
func (s *AdaptedLayer) VirtualTokens() int64 {
	if _, ok := s.options["num_virtual_tokens"]; ok {
		return s.count("num_virtual_tokens")
	}
	return 0
}

// SetCaller sets the frame of PeftModel.forward, in which the virtual tokens are variables.
func (s *AdaptedLayer) SetCaller(f *trace.Frame) { s.caller = f }

func (s *AdaptedLayer) embeddings() *nn.Embedding { return s.BaseLayer.(*embeddingTable).Embeddings }

func (s *AdaptedLayer) addPTuning() error {
	hidden := cmp.Or(s.count("encoder_hidden_size"), s.out)
	widths := []int64{s.out, hidden, hidden, s.out}
	if s.text("encoder_reparameterization_type") == "LSTM" {
		if err := s.requirePositive("encoder_num_layers"); err != nil {
			return err
		}
		s.addLSTM(hidden)
		widths = []int64{2 * hidden, 2 * hidden, s.out}
	}
	for i := range len(widths) - 1 {
		s.addWeight(fmt.Sprint("mlp_head.weight", i), widths[i+1], widths[i])
		s.addWeight(fmt.Sprint("mlp_head.bias", i), widths[i+1])
	}
	s.addWeight("embedding", s.count("num_virtual_tokens"), s.out)
	return s.requirePositive("num_virtual_tokens")
}

// addLSTM adds a bidirectional LSTM to the encoder of virtual tokens (p-tuning).
func (s *AdaptedLayer) addLSTM(hidden int64) {
	const gates = 4
	in := s.out
	for layer := range s.count("encoder_num_layers") {
		for _, back := range []string{"", "_reverse"} {
			for _, w := range []struct {
				name string
				dims []int64
			}{
				{"weight_ih", []int64{gates * hidden, in}},
				{"weight_hh", []int64{gates * hidden, hidden}},
				{"bias_ih", []int64{gates * hidden}},
				{"bias_hh", []int64{gates * hidden}},
			} {
				s.addWeight(fmt.Sprintf("lstm_head.%s_l%d%s", w.name, layer, back), w.dims...)
			}
		}
		in = 2 * hidden
	}
}

// lstmWeights returns the weights of the prompt encoder's LSTM; none if the encoder has no LSTM.
func (s *AdaptedLayer) lstmWeights() (weights []*tensor) {
	for _, p := range s.Own.Parameters() {
		if len(weights) < int(8*s.count("encoder_num_layers")) && p.TensorOrNil() != nil {
			weights = append(weights, p.TensorOrNil())
		}
	}
	return weights
}

// AfterMove implements [nn.MoveHook]: nn.LSTM copies its weights into one buffer (flatten_parameters).
func (s *AdaptedLayer) AfterMove(t *trace.Tape) {
	if s.has(firstLSTMWeight) {
		ops.FlattenRNNWeights(t, s.lstmWeights())
	}
}

// firstLSTMWeight is the name of the first weight of the prompt encoder's LSTM.
const firstLSTMWeight = "lstm_head.weight_ih_l0"

// forwardLSTM records nn.LSTM.forward of virtual tokens [1, n, width].
func (s *AdaptedLayer) forwardLSTM(f *frame, x *tensor) *tensor {
	g, layers := f.CallFrame(x), s.count("encoder_num_layers")
	hidden := s.w("lstm_head.weight_hh_l0").Size(1)
	h := g.Bind(g.Tape().Zeros(x.DType(), 2*layers, 1, hidden))
	c := g.Bind(g.Tape().Zeros(x.DType(), 2*layers, 1, hidden))
	y, hy, cy := ops.RNN(x, h, c, ops.RNNArgs{
		Mode: ops.LSTM, Hidden: hidden, Layers: layers, Bidirectional: true, BatchFirst: true, Training: s.Training(),
		Dropout: s.number("encoder_dropout"), Weights: s.lstmWeights(),
	})
	g.BindEach(y, hy, cy)
	return g.Return(y)
}

// forwardWithPrompt looks up embeddings, and prepends virtual tokens, which an encoder may compute.
func (s *AdaptedLayer) forwardWithPrompt(f *frame, ids *tensor) *tensor {
	rows := f.Bind(f.Call(s.BaseLayer, ids))
	g, n := f.FunctionFrame(), s.count("num_virtual_tokens")
	tokens := g.Bind(g.Tape().New("to_device", program.Temporaries, trace.I64, ids.Size(0), n))
	y := g.Bind(tokens.Slice(0, 0, 1).Embedding(s.w("embedding")))
	if s.has(firstLSTMWeight) {
		g.Set(&y, s.forwardLSTM(g, y))
	}
	for i := range 3 {
		if !s.has(fmt.Sprint("mlp_head.weight", i)) {
			break
		}
		if i > 0 {
			g.Set(&y, y.ReLU())
		}
		g.Set(&y, y.Linear(s.w(fmt.Sprint("mlp_head.weight", i)), s.w(fmt.Sprint("mlp_head.bias", i))))
	}
	prompts := f.Bind(g.Return(y.Repeat(ids.Size(0), 1, 1)))
	cast := s.caller.Bind(prompts.To(rows.DType()))
	f.Del(&prompts)
	return s.caller.Bind(trace.Cat(1, cast, rows))
}

func (s *AdaptedLayer) addTrainableTokens() error {
	n := int64(len(strings.Split(s.text("token_indices"), "+")))
	if s.text("token_indices") == none || n > s.in {
		return fmt.Errorf("token_indices: need token numbers below the vocabulary size %d, joined by \"+\"", s.in)
	}
	s.addWeight("trainable_tokens_delta", n, s.out)
	s.Own.AddBuffer(trace.F32, n, s.out) // trainable_tokens_original
	return nil
}

// mergedTable records TrainableTokensLayer.get_merged_weights: a copy of the embeddings with the trained rows.
func (s *AdaptedLayer) mergedTable(f *frame) *tensor {
	g, w, delta := f.FunctionFrame(), s.embeddings().Weight.TensorOrNil(), s.w("trainable_tokens_delta")
	index := g.Bind(g.Tape().New("to_device", program.Temporaries, trace.I64, delta.Size(0)))
	rows := g.Bind(delta.To(w.DType()))
	return f.Bind(g.Return(w.IndexCopy(0, index, rows)))
}

func (s *AdaptedLayer) trainableTokens(f *frame, ids *tensor) *tensor {
	return s.embeddings().Lookup(ids, s.mergedTable(f))
}

// tiedOutput is an output layer that shares its weight with the input embeddings, some of whose rows are trained.
type tiedOutput struct {
	nn.Module
	BaseLayer  *nn.Linear
	embeddings *AdaptedLayer
}

// Forward maps [..., width] to logits [..., tokens].
func (l *tiedOutput) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if l.embeddings.disabled {
		return f.Call(l.BaseLayer, x)
	}
	return x.Linear(l.embeddings.mergedTable(f), nil)
}

// LLaMA-Adapter adds prompt tokens to the attention of the last layers.

// lookup returns the embeddings of ids, which LLaMA-Adapter does not change.
func (s *AdaptedLayer) lookup(f *frame, ids *tensor) *tensor { return f.Call(s.BaseLayer, ids) }

// Attention is an attention module to which LLaMA-Adapter can add a prompt.
type Attention interface{ AddPrompt(p *Prompt) }

// Prompt holds prompt tokens [1, tokens, width] to which a layer also attends, and the gate [1] of that attention.
type Prompt struct{ Weight, Gate *nn.Parameter }

// addPrompts adds a prompt in the weights' dtype to each of the last layers.
func (s *AdaptedLayer) addPrompts() error {
	all := s.BaseLayer.(*embeddingTable).attentions
	if len(all) == 0 {
		return errors.New("peft 0.21 adds adaption prompts only to llama, mistral and gpt2, and vprof to the first " +
			"two; use such a model, or another method")
	}
	numbers := map[string]int64{}
	for _, key := range []string{"adapter_len", "adapter_layers"} {
		n, err := strconv.ParseInt(s.text(key), 10, 64)
		if err != nil || n < 1 || key == "adapter_layers" && n > int64(len(all)) {
			return fmt.Errorf("invalid %s=%s: adapter_len is the number of tokens of a prompt, adapter_layers the "+
				"number of layers with one (the model has %d), like adapter_len=10,adapter_layers=2",
				key, s.text(key), len(all))
		}
		numbers[key] = n
	}
	for i, a := range all[int64(len(all))-numbers["adapter_layers"]:] {
		prompt, gate := fmt.Sprint("adaption_prompt", i), fmt.Sprint("adaption_gate", i)
		s.addWeight(prompt, 1, numbers["adapter_len"], s.out)
		s.addWeight(gate, 1)
		p := &Prompt{s.parameter(prompt), s.parameter(gate)}
		p.Weight.DType, p.Gate.DType = s.BaseType(), s.BaseType()
		a.AddPrompt(p)
	}
	return nil
}
