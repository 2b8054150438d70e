package pt2

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// outputLayer describes the nodes that compute logits and their cross entropy. A loss in chunks of tokens replaces
// them.
type outputLayer struct {
	// linear is the node of the layer; loss the node of the cross entropy, -1 if the model returns logits.
	linear, loss int
	// adjust are the nodes that scale or cap the scores, in order.
	adjust []int
	// gone are all nodes between the two, and nodes that bring labels into their form.
	gone map[int]bool
	// x are the hidden states; labels the batch's, -1 if the model returns logits.
	x, labels int32
	// ownLabels reports whether labels are not shifted; otherwise each token predicts the next.
	ownLabels bool
}

const crossEntropy = "torch.ops.aten.cross_entropy_loss.default"

// shapeOperators are operators that change the form or the type of scores and labels, and nothing
// else; scaling are nodes that change each number by itself.
var (
	shapeOperators = map[string]bool{
		"view.default": true, "reshape.default": true, "flatten.using_ints": true, "_unsafe_view.default": true,
		"contiguous.default": true, "clone.default": true, "alias.default": true, "transpose.int": true,
		"to.dtype": true, "to.dtype_layout": true, "to.device": true, "_to_copy.default": true,
	}
	scaleOperators = map[string]bool{
		"mul.Tensor": true, "mul.Scalar": true, "div.Tensor": true, "div.Scalar": true,
		"tanh.default": true,
	}
)

// shortTarget returns the name of an operator without its namespace.
func shortTarget(target string) string { return strings.TrimPrefix(target, "torch.ops.aten.") }

// overloadName returns the name of an operator without its namespace and overload: "view".
func overloadName(target string) string {
	name, _, _ := strings.Cut(shortTarget(target), ".")
	return name
}

// describe names a node and its module, as in a message.
func describe(n *export.Node) string {
	if n.Module == "" {
		return shortTarget(n.Target)
	}
	return shortTarget(n.Target) + " in " + n.Module
}

// outputLayerSearch looks for the output layer of a program.
type outputLayerSearch struct {
	p *export.Program
	// maker is the node that makes a value, -1 of inputs; takers are the nodes that use one, but for checks.
	maker  []int
	takers [][]int
	found  outputLayer
	// cut reports whether the scores of last tokens are left out.
	cut bool
}

func newOutputLayerSearch(g *graph) *outputLayerSearch {
	s := &outputLayerSearch{
		p: g.Program, maker: findUses(g.Program).maker, takers: make([][]int, g.Values),
		found: outputLayer{loss: -1, labels: -1, gone: map[int]bool{}},
	}
	for i := range g.Nodes {
		if g.calls[i].skip {
			continue
		}
		eachInput(&g.Nodes[i], func(v int32) { s.takers[v] = append(s.takers[v], i) })
	}
	return s
}

// findOutputLayer finds the output layer from the result that the loss is computed from: the loss itself, or logits
// whose cross entropy is computed over all tokens with unshifted labels. The error describes what it found instead.
func findOutputLayer(g *graph, result int32, returnsLoss bool) (*outputLayer, error) {
	s := newOutputLayerSearch(g)
	scores := result
	if returnsLoss {
		n, err := s.crossEntropy(result)
		if err != nil {
			return nil, err
		}
		if scores = inputOf(n, "self"); scores < 0 {
			return nil, errors.New("the cross entropy has no logits")
		}
	}
	if err := s.scores(scores); err != nil {
		return nil, err
	}
	if !returnsLoss {
		s.found.ownLabels = true
		return &s.found, nil
	}
	return &s.found, s.labels(inputOf(&s.p.Nodes[s.found.loss], "target"))
}

// crossEntropy finds the program's only cross entropy.
func (s *outputLayerSearch) crossEntropy(result int32) (*export.Node, error) {
	for i := range s.p.Nodes {
		if s.p.Nodes[i].Target != crossEntropy {
			continue
		}
		if s.found.loss >= 0 {
			return nil, errors.New("the model computes more than one cross entropy")
		}
		s.found.loss = i
	}
	if s.found.loss < 0 {
		if i := s.maker[result]; i >= 0 {
			return nil, fmt.Errorf("the loss is the result of %s, not a cross entropy", describe(&s.p.Nodes[i]))
		}
		return nil, errors.New("the loss is an input of the model, not a cross entropy")
	}
	n := &s.p.Nodes[s.found.loss]
	if w := findArgument(n, "weight"); w != nil && w.Kind != export.None {
		return nil, errors.New("the cross entropy weighs classes")
	}
	if l := findArgument(n, "label_smoothing"); l != nil && (l.Kind != export.Real || l.Real != 0) {
		return nil, errors.New("the cross entropy smooths labels")
	}
	if r := findArgument(n, "reduction"); r != nil && r.Int != 1 {
		return nil, errors.New("the cross entropy is not the mean over tokens")
	}
	return n, nil
}

// scores follows the logits back to the linear layer that computes them.
func (s *outputLayerSearch) scores(v int32) error {
	s.found.linear = -1
	for next := s.found.loss; s.found.linear < 0; {
		i := s.maker[v]
		if i < 0 {
			return errors.New("the logits are an input of the model, not the result of a linear layer")
		}
		n := &s.p.Nodes[i]
		if err := s.goes(v, next); err != nil {
			return err
		}
		switch name := shortTarget(n.Target); {
		case n.Target == linear:
			s.found.linear = i
			s.found.x = inputOf(n, "input")
			return s.layer(n)
		case scaleOperators[name] && hasOneUse(n):
			s.found.adjust = append([]int{i}, s.found.adjust...)
		case name == "slice.Tensor" && (isFullSlice(n) || dropsLast(n)):
			s.cut = s.cut || dropsLast(n)
		case !shapeOperators[name]:
			return fmt.Errorf("the logits come from %s, but this needs a model whose last layer is linear", describe(n))
		case len(s.found.adjust) > 0 && strings.HasPrefix(name, "to."):
			s.found.adjust = append([]int{i}, s.found.adjust...)
		}
		s.found.gone[i] = true
		v, next = inputOf(n, "self"), i
		if v < 0 {
			return fmt.Errorf("%s has no tensor as input", describe(n))
		}
	}
	return nil
}

// goes returns an error if a node other than next uses a value that will be removed.
func (s *outputLayerSearch) goes(v int32, next int) error {
	for _, i := range s.takers[v] {
		if i != next {
			if s.found.loss < 0 {
				return fmt.Errorf("%s also reads the logits; leave out --loss if the model computes this loss itself",
					describe(&s.p.Nodes[i]))
			}
			return fmt.Errorf("%s also reads the logits or labels", describe(&s.p.Nodes[i]))
		}
	}
	return nil
}

// hasOneUse reports whether a node has no second tensor.
func hasOneUse(n *export.Node) bool {
	other := findArgument(n, "other")
	return other == nil || other.Kind == export.Integer || other.Kind == export.Real
}

// layer checks the layer: its weight must be a parameter that no other layer shares.
func (s *outputLayerSearch) layer(n *export.Node) error {
	s.found.gone[s.found.linear] = true
	weight := inputOf(n, "weight")
	at := slices.IndexFunc(s.p.Inputs, func(in export.Input) bool {
		return in.Role == export.Parameter && in.Value == weight
	})
	if at < 0 || s.found.x < 0 {
		return fmt.Errorf("the weight of %s is not a parameter but computed", describe(n))
	}
	for _, i := range s.takers[weight] {
		if i != s.found.linear && s.p.Nodes[i].Target == linear {
			return fmt.Errorf("%s is called more than once", describe(n))
		}
	}
	return nil
}

// constantArgument returns an integer argument of a node, or its default.
func constantArgument(n *export.Node, name string, usual int64) (int64, bool) {
	switch a := findArgument(n, name); {
	case a == nil || a.Kind == export.None:
		return usual, true
	case a.Kind == export.Integer:
		return a.Int, true
	default:
		return 0, false
	}
}

// sliceRange returns the borders of a slice; ok is false if they are computed.
func sliceRange(n *export.Node) (start, end int64, ok bool) {
	start, known := constantArgument(n, "start", 0)
	end, ends := constantArgument(n, "end", math.MaxInt64)
	step, steps := constantArgument(n, "step", 1)
	return start, end, known && ends && steps && step == 1
}

// isFullSlice reports whether a slice selects everything.
func isFullSlice(n *export.Node) bool {
	start, end, ok := sliceRange(n)
	return ok && start == 0 && end == math.MaxInt64
}

// dropsLast reports whether a slice leaves out the last token of each sequence.
func dropsLast(n *export.Node) bool {
	start, end, ok := sliceRange(n)
	d, known := constantArgument(n, "dim", 0)
	return ok && known && start == 0 && end == -1 && (d == 1 || d == -2)
}

// labels follows the targets of the cross entropy back to the batch's labels, past the nodes that only reshape or shift
// them.
func (s *outputLayerSearch) labels(v int32) error {
	if v < 0 {
		return errors.New("the cross entropy has no labels")
	}
	padded, shifted := false, false
	for next := s.found.loss; ; {
		i := s.maker[v]
		if i < 0 || !onlyShapes(&s.p.Nodes[i], &padded, &shifted) {
			break
		}
		if err := s.goes(v, next); err != nil {
			return err
		}
		s.found.gone[i] = true
		v, next = inputOf(&s.p.Nodes[i], "self"), i
	}
	if v < 0 || shifted != (padded || s.cut) {
		return errors.New(
			"logits and labels are not shifted as for predicting the next token")
	}
	s.found.labels, s.found.ownLabels = v, !shifted
	return nil
}

// onlyShapes reports whether a node only brings labels into the form of the cross entropy, and records whether it
// appends a label or removes the first one.
func onlyShapes(n *export.Node, padded, shifted *bool) bool {
	if inputOf(n, "self") < 0 {
		return false
	}
	switch name := shortTarget(n.Target); name {
	case "slice.Tensor":
		start, end, ok := sliceRange(n)
		ok = ok && (start == 0 || start == 1) && end == math.MaxInt64
		*shifted = *shifted || ok && start == 1
		return ok
	case "pad.default", "constant_pad_nd.default":
		*padded = true
		return true
	default:
		return shapeOperators[name]
	}
}

// without returns the program without the output layer. Values that its nodes release are released by the loss's node,
// or at the end of forward's frame if the logits were returned.
func (l *outputLayer) without(g *graph) *graph {
	p := *g.Program
	p.Nodes = slices.Clone(p.Nodes)
	out := g.withProgram(&p)
	made := map[int32]bool{}
	var later []int32
	for i := range p.Nodes {
		if !l.gone[i] {
			continue
		}
		n := &p.Nodes[i]
		eachOutput(n, func(v int32) { made[v] = true })
		out.calls[i].skip = true
		later = append(later, n.Dies...)
		n.Dies = nil
	}
	later = slices.DeleteFunc(later, func(v int32) bool { return made[v] })
	if l.loss >= 0 {
		n := &p.Nodes[l.loss]
		n.Dies = append(slices.DeleteFunc(slices.Clone(n.Dies), func(v int32) bool { return made[v] }), later...)
	}
	return out
}

// returnedValues returns the nodes whose results the model returns, possibly scaled and capped.
func returnedValues(p *export.Program) map[int]bool {
	out := map[int]bool{}
	maker := findUses(p).maker
	for _, r := range p.Results {
		for v := r.Value; v >= 0 && maker[v] >= 0; {
			n := &p.Nodes[maker[v]]
			out[maker[v]] = true
			if !scaleOperators[shortTarget(n.Target)] || !hasOneUse(n) {
				break
			}
			v = inputOf(n, "self")
		}
	}
	return out
}
