package pt2

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// The settings that select how logits and loss are computed.
const (
	chunkedLoss = "chunked-loss"
	linearLoss  = "linear-cross-entropy"
	fusedLoss   = "fused-loss"
	plainLoss   = "plain-loss"
	ligerLoss   = "liger"
)

// readsTokens reports whether the program's input is a sequence of integers, as in language models.
func readsTokens(p *export.Program) bool {
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.UserInput && !in.Number && in.Type == export.Long &&
			len(in.Sizes) >= 2 {
			return true
		}
	}
	return false
}

// fusedHead is the output layer as a module, for a loss that calls it.
type fusedHead struct {
	t       *task
	l       *outputLayer
	setting string // the setting that selects the loss
	weight  int32
	loss    hf.OutputLoss
}

// applyChunkedLoss replaces the nodes of logits and loss by a loss in chunks of tokens if the case selects one. The
// error belongs to the returned setting.
func (t *task) applyChunkedLoss() (setting string, err error) {
	switch {
	case t.c.IsSwitchOn(linearLoss):
		setting = linearLoss
	case t.c.Settings[chunkedLoss] > 1:
		setting = chunkedLoss
	case !t.Training() && t.c.Loss == Output: // in evaluation liger-kernel's forward computes all logits
		return "", nil
	case t.c.IsSwitchOn(fusedLoss):
		setting = fusedLoss
	case t.c.Liger && !t.c.IsSwitchOn(plainLoss) && t.c.Loss == Output && hasLigerLoss(t.g.Program):
		setting = ligerLoss
	default:
		return "", nil
	}
	if t.c.Loss != Output && t.c.Loss != TokenCrossEntropy &&
		(t.c.Loss != CrossEntropy || t.g.Results[t.output].Dims != 2) {
		return setting, fmt.Errorf("this loss needs the cross entropy of tokens, but --loss is %s over %d "+
			"dimensions; use --loss %s", t.c.Loss, t.g.Results[t.output].Dims, TokenCrossEntropy)
	}
	l, err := findOutputLayer(t.g, t.g.Results[t.output].Value, t.c.Loss == Output)
	if err != nil {
		return setting, fmt.Errorf("the fused and chunked losses replace the last linear layer and the cross entropy "+
			"of its logits, which is not possible in this graph: %w; leave out --set fused-loss and chunked-loss", err)
	}
	h := &fusedHead{t: t, l: l, setting: setting, weight: inputOf(&t.g.Nodes[l.linear], "weight")}
	if err := h.checkCallable(); err != nil {
		return setting, err
	}
	h.loss = hf.OutputLoss{Output: h, Adjust: h.scaleLogits, Unshifted: l.unshifted}
	t.g, t.head = l.removeFrom(t.g), h
	if l.loss >= 0 {
		t.g.calls[l.loss].replacement = func(w *nodeRunner) []aten.Value {
			x, isTensor := w.values[l.x].(*trace.Tensor)
			labels, labeled := w.values[l.labels].(*trace.Tensor)
			if !isTensor || !labeled || x.NDim() < 2 || x.Numel() != labels.Numel()*x.Size(-1) {
				w.raiseAt(&t.g.Nodes[l.loss],
					errors.New(setting+": the output layer must see one token for each label, but the numbers "+
						"differ; leave the setting out"))
			}
			return []aten.Value{h.lossOf(w.frame, x, labels)}
		}
		return "", nil
	}
	t.g.Results = append([]export.Result(nil), t.g.Results...)
	t.g.Results[t.output].Value = l.x
	t.loss = func(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
		return h.lossOf(f, x, f.Tape().Zeros(trace.I64, x.Numel()/x.Size(-1)))
	}
	return "", nil
}

// weightReaders are the losses that multiply by the output layer's weight themselves.
var weightReaders = map[string]string{
	linearLoss: "linear_cross_entropy", fusedLoss: "liger-kernel's fused linear cross entropy",
	ligerLoss: "liger-kernel's fused linear cross entropy",
}

// capsLogits reports whether logits are capped by tanh and otherwise unchanged, which liger-kernel's loss supports
// (softcap).
func (h *fusedHead) capsLogits() bool {
	var names []string
	for _, i := range h.l.scaling {
		name, _, _ := strings.Cut(shortTarget(h.t.g.Nodes[i].Target), ".")
		names = append(names, name)
	}
	return slices.Equal(names, []string{"div", "tanh", "mul"})
}

// checkCallable returns an error if the loss cannot call the output layer.
func (h *fusedHead) checkCallable() error {
	n := &h.t.g.Nodes[h.l.linear]
	if name, reads := weightReaders[h.setting]; reads {
		switch {
		case len(h.l.scaling) > 0 && (h.setting == linearLoss || !h.capsLogits()):
			return fmt.Errorf("%s needs unchanged logits, but this model scales or caps them; use --set chunked-loss=N",
				name)
		case inputOf(n, "bias") >= 0:
			return fmt.Errorf("vprof supports %s only for a layer without a bias, and %s has one; use --set "+
				"chunked-loss=N", name, n.Module)
		case h.t.isReplaced(h.weight):
			return fmt.Errorf("%s uses only the weight of %s, which has an adapter or is quantized; leave the layer "+
				"out of target= in --lora", name, n.Module)
		}
	}
	switch s := h.t.c.Strategy; {
	case s == nil || s.Name == models.DDP:
	case s.Name == models.PP:
		return errors.New("vprof supports chunked losses of exported models (.pt2) only without pipelines; use " +
			"another --strategy than pp")
	case h.l.loss < 0:
		return errors.New("the ranks gather the output layer within the model, which returns logits; use a model " +
			"that returns its loss, or --strategy ddp")
	}
	for i := range h.l.removed {
		for _, r := range h.t.regions {
			if r.begin <= i && i < r.end {
				return fmt.Errorf("checkpointing recomputes %s, which the chunked loss replaces; leave it out of "+
					"--set checkpoint=", n.Module)
			}
		}
	}
	return nil
}

// checkWraps returns an error if a wrapped module, other than the model itself, contains nodes of the output layer.
func (h *fusedHead) checkWraps(wraps []*wrappedCall) error {
	for _, c := range wraps {
		for i := range h.l.removed {
			if c.begin <= i && i < c.end && c.end-c.begin < len(h.t.g.Nodes) {
				return fmt.Errorf("ranks would gather %s for every chunk of the loss, which vprof supports only for "+
					"models of transformers; use --model hf:config.json", h.t.g.Nodes[h.l.linear].Module)
			}
		}
	}
	return nil
}

func (h *fusedHead) lossOf(f *trace.Frame, x, labels *trace.Tensor) *trace.Tensor {
	weight := h.t.weightOf[h.weight].tensor()
	switch {
	case h.setting == linearLoss:
		return h.loss.LinearCrossEntropy(f, x, weight, labels)
	case h.setting != chunkedLoss && h.l.unshifted:
		return liger.LinearCrossEntropy(f, x, weight, labels)
	case h.setting != chunkedLoss:
		return liger.CausalLMLoss(f, x, weight, labels)
	}
	return h.loss.ChunkedLoss(f, x, labels, h.t.c.Settings[chunkedLoss])
}

// Forward maps hidden states [rows, width] to logits [rows, classes].
func (h *fusedHead) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if s := h.t.linearSites[h.weight]; s != nil {
		return s.layer().Forward(f, x)
	}
	var bias *trace.Tensor
	if b := h.t.weightOf[inputOf(&h.t.g.Nodes[h.l.linear], "bias")]; b != nil {
		bias = b.tensor()
	}
	return x.Linear(h.t.weightOf[h.weight].tensor(), bias)
}

// scaleLogits runs the nodes that scale or cap logits.
func (h *fusedHead) scaleLogits(f *trace.Frame, scores **trace.Tensor) {
	w := &nodeRunner{task: h.t, frame: f}
	for _, i := range h.l.scaling {
		n, op := &h.t.g.Nodes[i], h.t.g.calls[i].op
		given := make([]aten.Arg, len(n.Inputs))
		for k, in := range n.Inputs {
			given[k] = aten.Arg{Name: in.Name}
			if in.Kind == export.Ref {
				given[k].Value = *scores
			} else {
				given[k].Value = w.argumentValue(in.Argument, schemaType(op, in.Name))
			}
		}
		args, err := op.Bind(given...)
		if err != nil {
			w.raiseAt(n, err)
		}
		out, err := op.Call(f.Tape(), args)
		if err != nil {
			w.raiseAt(n, err)
		}
		if y, ok := out[0].(*trace.Tensor); ok {
			f.Set(scores, y)
		}
	}
}
