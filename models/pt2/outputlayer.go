package pt2

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
)

// outputLayer is the nodes that compute logits and their cross entropy, which a loss in chunks of tokens replaces.
type outputLayer struct {
	// linear is the node of the output layer. loss is the node of the cross entropy; -1 if the model returns logits.
	linear, loss int
	// scaling are the nodes that scale or cap logits, in order.
	scaling []int
	// removed are the nodes to remove: all between linear and loss, and nodes that reshape or shift labels.
	removed map[int]bool
	// x is the value of the hidden states, labels the value of the batch's labels; -1 if the model returns logits.
	x, labels int32
	// unshifted reports whether labels are used unshifted; otherwise each token predicts the next one.
	unshifted bool
}

const crossEntropyTarget = "torch.ops.aten.cross_entropy_loss.default"

// shapeOperators change only shapes or dtypes of logits and labels. scaleOperators change each element by itself.
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

func shortTarget(target string) string { return strings.TrimPrefix(target, "torch.ops.aten.") }

// overloadName returns an operator's name without namespace and overload: "view".
func overloadName(target string) string {
	name, _, _ := strings.Cut(shortTarget(target), ".")
	return name
}

func describeNode(n *export.Node) string {
	if n.Module == "" {
		return shortTarget(n.Target)
	}
	return shortTarget(n.Target) + " in " + n.Module
}

// outputLayerSearch is the state of a search for a program's output layer.
type outputLayerSearch struct {
	p *export.Program
	// producer is the node that computes a value; -1 for inputs. users are the nodes that use a value, except checks.
	producer []int
	users    [][]int
	found    outputLayer
	// dropsLastLogits reports whether the logits of the last tokens are removed.
	dropsLastLogits bool
}

func newOutputLayerSearch(g *graph) *outputLayerSearch {
	s := &outputLayerSearch{
		p: g.Program, producer: findUses(g.Program).producer, users: make([][]int, g.Values),
		found: outputLayer{loss: -1, labels: -1, removed: map[int]bool{}},
	}
	for i := range g.Nodes {
		if g.calls[i].skip {
			continue
		}
		eachInput(&g.Nodes[i], func(v int32) { s.users[v] = append(s.users[v], i) })
	}
	return s
}

// findOutputLayer finds the output layer, starting at the result that the loss is computed from: the loss itself, or
// logits whose cross entropy is computed over all tokens with unshifted labels. The error describes what it finds.
func findOutputLayer(g *graph, result int32, returnsLoss bool) (*outputLayer, error) {
	s := newOutputLayerSearch(g)
	scores := result
	if returnsLoss {
		n, err := s.findCrossEntropy(result)
		if err != nil {
			return nil, err
		}
		if scores = inputOf(n, "self"); scores < 0 {
			return nil, errors.New("the cross entropy has no logits as its input")
		}
	}
	if err := s.followLogits(scores); err != nil {
		return nil, err
	}
	if !returnsLoss {
		s.found.unshifted = true
		return &s.found, nil
	}
	return &s.found, s.followLabels(inputOf(&s.p.Nodes[s.found.loss], "target"))
}

// findCrossEntropy returns the program's only cross entropy.
func (s *outputLayerSearch) findCrossEntropy(result int32) (*export.Node, error) {
	for i := range s.p.Nodes {
		if s.p.Nodes[i].Target != crossEntropyTarget {
			continue
		}
		if s.found.loss >= 0 {
			return nil, errors.New("the model computes several cross entropies")
		}
		s.found.loss = i
	}
	if s.found.loss < 0 {
		if i := s.producer[result]; i >= 0 {
			return nil, fmt.Errorf("the loss is the result of %s, not a cross entropy", describeNode(&s.p.Nodes[i]))
		}
		return nil, errors.New("the loss is an input of the model, not a cross entropy")
	}
	n := &s.p.Nodes[s.found.loss]
	if w := findArgument(n, "weight"); w != nil && w.Kind != export.None {
		return nil, errors.New("the cross entropy has class weights (weight=)")
	}
	if l := findArgument(n, "label_smoothing"); l != nil && (l.Kind != export.Real || l.Real != 0) {
		return nil, errors.New("the cross entropy has label smoothing (label_smoothing=)")
	}
	if r := findArgument(n, "reduction"); r != nil && r.Int != 1 {
		return nil, errors.New("the cross entropy is not the mean over tokens (reduction=)")
	}
	return n, nil
}

func (s *outputLayerSearch) followLogits(v int32) error {
	s.found.linear = -1
	for next := s.found.loss; s.found.linear < 0; {
		i := s.producer[v]
		if i < 0 {
			return errors.New("the logits are an input of the model, not computed by a linear layer")
		}
		n := &s.p.Nodes[i]
		if err := s.checkRemovable(v, next); err != nil {
			return err
		}
		switch name := shortTarget(n.Target); {
		case n.Target == linearTarget:
			s.found.linear = i
			s.found.x = inputOf(n, "input")
			return s.checkLinear(n)
		case scaleOperators[name] && hasOneUse(n):
			s.found.scaling = append([]int{i}, s.found.scaling...)
		case name == "slice.Tensor" && (isFullSlice(n) || dropsLast(n)):
			s.dropsLastLogits = s.dropsLastLogits || dropsLast(n)
		case !shapeOperators[name]:
			return fmt.Errorf("the logits are computed by %s, not by a linear layer", describeNode(n))
		case len(s.found.scaling) > 0 && strings.HasPrefix(name, "to."):
			s.found.scaling = append([]int{i}, s.found.scaling...)
		}
		s.found.removed[i] = true
		v, next = inputOf(n, "self"), i
		if v < 0 {
			return fmt.Errorf("%s has no tensor as input", describeNode(n))
		}
	}
	return nil
}

// checkRemovable returns an error if a node other than next uses a value that is to be removed.
func (s *outputLayerSearch) checkRemovable(v int32, next int) error {
	for _, i := range s.users[v] {
		if i != next {
			if s.found.loss < 0 {
				return fmt.Errorf("%s also reads the logits; leave out --loss if the model computes its loss itself",
					describeNode(&s.p.Nodes[i]))
			}
			return fmt.Errorf("%s also reads the logits or labels", describeNode(&s.p.Nodes[i]))
		}
	}
	return nil
}

func hasOneUse(n *export.Node) bool {
	other := findArgument(n, "other")
	return other == nil || other.Kind == export.Integer || other.Kind == export.Real
}

// checkLinear checks the linear layer: no other layer may share its weight, which must be a parameter.
func (s *outputLayerSearch) checkLinear(n *export.Node) error {
	s.found.removed[s.found.linear] = true
	weight := inputOf(n, "weight")
	at := slices.IndexFunc(s.p.Inputs, func(in export.Input) bool {
		return in.Role == export.Parameter && in.Value == weight
	})
	if at < 0 || s.found.x < 0 {
		return fmt.Errorf("the weight of %s is computed and not a parameter", describeNode(n))
	}
	for _, i := range s.users[weight] {
		if i != s.found.linear && s.p.Nodes[i].Target == linearTarget {
			return fmt.Errorf("%s is called more than once", describeNode(n))
		}
	}
	return nil
}

// constantArgument returns an integer argument of a node, or its default; false if it is computed.
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

// sliceRange returns the bounds of a slice; ok is false if they are computed.
func sliceRange(n *export.Node) (start, end int64, ok bool) {
	start, known := constantArgument(n, "start", 0)
	end, ends := constantArgument(n, "end", math.MaxInt64)
	step, steps := constantArgument(n, "step", 1)
	return start, end, known && ends && steps && step == 1
}

func isFullSlice(n *export.Node) bool {
	start, end, ok := sliceRange(n)
	return ok && start == 0 && end == math.MaxInt64
}

// dropsLast reports whether a slice removes the last token of each sequence.
func dropsLast(n *export.Node) bool {
	start, end, ok := sliceRange(n)
	d, known := constantArgument(n, "dim", 0)
	return ok && known && start == 0 && end == -1 && (d == 1 || d == -2)
}

// followLabels follows the cross entropy's targets back to the batch's labels, past nodes that reshape or shift them.
func (s *outputLayerSearch) followLabels(v int32) error {
	if v < 0 {
		return errors.New("the cross entropy has no labels")
	}
	padded, shifted := false, false
	for next := s.found.loss; ; {
		i := s.producer[v]
		if i < 0 || !isLabelReshape(&s.p.Nodes[i], &padded, &shifted) {
			break
		}
		if err := s.checkRemovable(v, next); err != nil {
			return err
		}
		s.found.removed[i] = true
		v, next = inputOf(&s.p.Nodes[i], "self"), i
	}
	if v < 0 || shifted != (padded || s.dropsLastLogits) {
		return errors.New("logits and labels are not shifted by one token")
	}
	s.found.labels, s.found.unshifted = v, !shifted
	return nil
}

// isLabelReshape reports whether a node only reshapes or shifts labels. It sets padded if it appends a label, and
// shifted if it removes the first one.
func isLabelReshape(n *export.Node, padded, shifted *bool) bool {
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

// removeFrom returns the program without the output layer. The loss's node frees the values that the removed nodes
// freed; if logits were returned, they are freed at the end of forward.
func (l *outputLayer) removeFrom(g *graph) *graph {
	p := *g.Program
	p.Nodes = slices.Clone(p.Nodes)
	out := g.withProgram(&p)
	made := map[int32]bool{}
	var later []int32
	for i := range p.Nodes {
		if !l.removed[i] {
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

// returnedValues returns the nodes whose results, scaled or capped, the model returns.
func returnedValues(p *export.Program) map[int]bool {
	out := map[int]bool{}
	maker := findUses(p).producer
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
