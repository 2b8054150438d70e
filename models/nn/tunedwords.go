package nn

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Methods that are at the input embeddings: virtual tokens before those of each row, and rows of
// the table that are trained.

// table is the input embeddings as what a method is put at. Embeddings themselves are no
// [Projection], beside which adapters are put by default.
type table struct {
	Module
	Words *Embedding `torch:""`
}

func (t *table) widths() (in, out int64) { return t.Words.Weight.Dims[0], t.Words.Weight.Dims[1] }

func (t *table) adapterType() trace.DType { return t.Words.Weight.DType }

// Forward maps a tensor of indices to their rows.
func (t *table) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor { return f.Call(t.Words, x) }

// AtWords tells whether a method is at the input embeddings, and not at linear layers.
func (t Tuning) AtWords() bool { return t.method.words }

// TuneWords is peft.get_peft_model with a method at the input embeddings, which are words: it freezes
// the model and puts the method in the place of the embeddings, and of an output layer that has
// their weight. The error says what the method does not take.
func TuneWords(model any, t Tuning, words *Embedding, output Layer) (*Tuned, error) {
	Freeze(model)
	base := &table{Words: words}
	s := &Tuned{BaseLayer: base, Own: &Parts{}, Dropout: NewIdentity(), method: t.method, options: t.options}
	s.in, s.out = base.widths()
	if err := s.method.add(s); err != nil {
		return nil, err
	}
	for _, p := range placesOf(model, words) {
		*p = s
	}
	if l, ok := output.(*Linear); ok && l.Weight == words.Weight && s.has("trainable_tokens_delta") {
		for _, p := range placesOf(model, output) {
			*p = &tiedTokens{BaseLayer: l, words: s}
		}
	}
	return s, nil
}

// placesOf are the fields and list elements of type [Layer] that hold a layer.
func placesOf(model any, l Layer) (places []*Layer) {
	w := layerWalk{
		seen: map[uintptr]bool{}, wanted: func(other Layer, _ string) bool { return other == l },
		visit: func(v reflect.Value, _ string) { places = append(places, v.Addr().Interface().(*Layer)) },
	}
	w.walk(reflect.ValueOf(model), "")
	return places
}

// Tokens is how many virtual tokens the method puts before those of each row.
func (s *Tuned) Tokens() int64 {
	if _, ok := s.options["num_virtual_tokens"]; ok {
		return s.count("num_virtual_tokens")
	}
	return 0
}

// Within has the frame of peft's model hold what that names in a forward pass.
func (s *Tuned) Within(f *trace.Frame) { s.around = f }

func (s *Tuned) words() *Embedding { return s.BaseLayer.(*table).Words }

func (s *Tuned) addPromptTuning() error {
	s.weight("embedding", s.Tokens(), s.out)
	return s.positive("num_virtual_tokens")
}

func (s *Tuned) addPTuning() error {
	hidden := s.count("encoder_hidden_size")
	if hidden == 0 {
		hidden = s.out
	}
	if s.text("encoder_reparameterization_type") != "MLP" {
		return errors.New("vprof has rules for encoder_reparameterization_type=MLP, which is peft's default")
	}
	widths := []int64{s.out, hidden, hidden, s.out}
	for i := range 3 {
		s.weight(fmt.Sprint("mlp_head.weight", i), widths[i+1], widths[i])
		s.weight(fmt.Sprint("mlp_head.bias", i), widths[i+1])
	}
	return s.addPromptTuning()
}

// prompted looks words up and puts what an encoder makes of virtual tokens before them.
func (s *Tuned) prompted(f *frame, ids *tensor) *tensor {
	words := f.Let(f.Call(s.BaseLayer, ids))
	g := f.FuncFrame()
	tokens := g.Let(g.Tape().New("to_device", program.Temporaries, trace.I64, ids.Size(0), s.Tokens()))
	y := g.Let(tokens.Slice(0, 0, 1).Embedding(s.w("embedding")))
	for i := range 3 {
		if !s.has(fmt.Sprint("mlp_head.weight", i)) {
			break
		}
		if i > 0 {
			g.Set(&y, y.ReLU())
		}
		g.Set(&y, y.Linear(s.w(fmt.Sprint("mlp_head.weight", i)), s.w(fmt.Sprint("mlp_head.bias", i))))
	}
	prompts := f.Let(g.Return(y.Repeat(ids.Size(0), 1, 1)))
	cast := s.around.Let(prompts.To(words.DType()))
	f.Del(&prompts)
	return s.around.Let(trace.Cat(1, cast, words))
}

func (s *Tuned) addTrainableTokens() error {
	n := int64(len(strings.Split(s.text("token_indices"), "+")))
	if s.text("token_indices") == none || n > s.in {
		return fmt.Errorf("token_indices are numbers of the %d tokens, joined by \"+\"", s.in)
	}
	s.weight("trainable_tokens_delta", n, s.out)
	s.Own.Buffer(trace.F32, n, s.out) // trainable_tokens_original
	return nil
}

// merged is get_merged_weights: a copy of the table with the rows that are trained.
func (s *Tuned) merged(f *frame) *tensor {
	g, w, delta := f.FuncFrame(), s.words().Weight.T(), s.w("trainable_tokens_delta")
	index := g.Let(g.Tape().New("to_device", program.Temporaries, trace.I64, delta.Size(0)))
	rows := g.Let(delta.To(w.DType()))
	return f.Let(g.Return(w.IndexCopy(0, index, rows)))
}

func (s *Tuned) trainableTokens(f *frame, ids *tensor) *tensor {
	return s.words().Hook(ids.Embedding(s.merged(f)))
}

// tiedTokens is the output layer of a model whose input embeddings have tokens that are trained,
// and whose weight is theirs.
type tiedTokens struct {
	Module
	BaseLayer *Linear
	words     *Tuned
}

// Forward maps [..., width] to [..., tokens].
func (l *tiedTokens) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if l.words.off {
		return f.Call(l.BaseLayer, x)
	}
	return x.Linear(l.words.merged(f), nil)
}
