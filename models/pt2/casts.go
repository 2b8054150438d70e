package pt2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
)

// followTypes makes casts follow the dtypes of a run. An exported graph has the dtype that a cast had during export:
// for x.to(input_dtype) in an fp32 model that is fp32, which is wrong under autocast and with half-precision weights.
// So a cast that changed nothing during export, and whose source line names no dtype, casts to the dtype of the
// module's argument.
func followTypes(p *export.Program) {
	marks := typeMarks(p)
	followTypesOf(p)
	for arg, under := range marks { // what a cast depends on otherwise is found by its line
		arg.Autocast = under
	}
}

func typeMarks(p *export.Program) map[*export.Argument]export.UnderAutocast {
	out := map[*export.Argument]export.UnderAutocast{}
	if p.Extra == nil {
		return out
	}
	at := map[int32]*export.Node{}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Block != export.Close {
			at[n.Number] = n
		}
	}
	for _, m := range p.Extra.Autocast {
		n := at[m.Node]
		if n == nil {
			continue
		}
		if arg := findArgument(n, m.Argument); arg != nil && arg.Kind == export.Type {
			out[arg] = export.Stays
			if m.Half {
				out[arg] = export.Halves
			}
		}
	}
	return out
}

func followTypesOf(p *export.Program) {
	known := map[int32]int64{} // types of values in the export
	u := findUses(p)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch name := shortTarget(n.Target); name {
		case "_assert_tensor_metadata.default":
			if v, ok := findArgument(n, "a"), findArgument(n, "dtype"); v != nil && ok != nil && v.Kind == export.Ref &&
				ok.Kind == export.Type {
				known[v.Ref] = ok.Int
			}
		case "to.dtype", "to.dtype_layout", "to.device":
			x, d := findArgument(n, "self"), findArgument(n, "dtype")
			if x == nil || d == nil || x.Kind != export.Ref || d.Kind != export.Type || d.Int != int64(export.Float) {
				continue
			}
			was, ok := known[x.Ref]
			n.CastsNothing = ok && was == d.Int
			switch {
			case !n.CastsNothing:
			case len(n.Trace) > 0 && deviceOnly.MatchString(n.Trace[len(n.Trace)-1].Source): // only moves it
				*d = typeOfValues(x.Ref)
			case !namesType(n):
				*d = export.Argument{Kind: export.TypeOf, List: calledWith(p, i)}
			}
		case "zeros.default", "ones.default", "full.default":
			d := findArgument(n, "dtype")
			if d == nil || d.Kind != export.Type || d.Int != int64(export.Float) {
				continue
			}
			if makesMask(n) { // masks of numbers have the type of the embeddings
				*d = export.Argument{Kind: export.TypeOf, List: calledWith(p, i)}
			} else if q, ok := maskedQuery(p, u, i); ok {
				*d = typeOfValues(q)
			}
		}
	}
}

func typeOfValues(values ...int32) export.Argument {
	return export.Argument{Kind: export.TypeOf, List: lists.Map(values, func(v int32) export.Argument {
		return export.Argument{Kind: export.Ref, Ref: v}
	})}
}

var deviceOnly = regexp.MustCompile(`\.to\((device=)?[\w.]*\bdevice\)`)

// maskedQuery returns the query of the attention whose mask is made from the result of node i, if there is one: PyTorch
// needs query and mask in one dtype.
func maskedQuery(p *export.Program, u uses, i int) (query int32, ok bool) {
	mask := soleResult(&p.Nodes[i])
	for mask >= 0 && len(u.takers[mask]) > 0 {
		n := &p.Nodes[u.takers[mask][0]]
		switch {
		case n.Target == where && inputOf(n, "self") == mask:
			mask = soleResult(n)
		case n.Target == attention && inputOf(n, "attn_mask") == mask:
			q := inputOf(n, "query")
			return q, q >= 0 && u.maker[q] >= 0 && u.maker[q] < i
		default:
			return 0, false
		}
	}
	return 0, false
}

// findArgument returns the argument of a name, nil if the node has none.
func findArgument(n *export.Node, name string) *export.Argument {
	if i := slices.IndexFunc(n.Inputs, func(in export.Named) bool { return in.Name == name }); i >= 0 {
		return &n.Inputs[i].Argument
	}
	return nil
}

// typeNames are texts of source lines that name fp32, or call the losses of transformers, which compute in fp32. A line
// that is unknown may do so, too.
var typeNames = []string{"torch.float", ".float()", "dtype=float", "self.loss_function("}

func namesType(n *export.Node) bool {
	if len(n.Trace) == 0 {
		return true
	}
	source := n.Trace[len(n.Trace)-1].Source
	return source == "" || slices.ContainsFunc(typeNames, func(t string) bool { return strings.Contains(source, t) })
}

// calledWith returns the outside values that the call of node i's module has used so far, except parameters and
// buffers.
func calledWith(p *export.Program, i int) []export.Argument {
	stack := p.Nodes[i].Stack
	first := i
	for first > 0 && isPrefix(stack, p.Nodes[first-1].Stack) {
		first--
	}
	own := map[int32]bool{}
	for k := range p.Inputs {
		own[p.Inputs[k].Value] = p.Inputs[k].Role != export.UserInput
	}
	var out []export.Argument
	for k := first; k <= i; k++ {
		n := &p.Nodes[k]
		eachInput(n, func(v int32) {
			if !own[v] {
				out = append(out, export.Argument{Kind: export.Ref, Ref: v})
			}
			own[v] = true
		})
		eachOutput(n, func(v int32) { own[v] = true })
	}
	return out
}

func isPrefix(a, b []string) bool { return len(a) <= len(b) && slices.Equal(a, b[:len(a)]) }

// restoreCastArguments undoes an effect of tracing. A cast that changes nothing returns its argument, and export names
// tensors by identity: after such a cast, the graph uses the cast's name for the argument everywhere, even where the
// model's code uses the argument itself, such as the residual stream around a norm. Uses outside of the code that made
// the cast refer to the argument again, if the argument was also made outside of it.
func restoreCastArguments(p *export.Program) {
	born := make([]int, p.Values)
	for i := range born {
		born[i] = -1
	}
	means := map[int32]int32{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k := range n.Inputs {
			renameArgument(&n.Inputs[k].Argument, means, i, p, born)
		}
		eachOutput(n, func(v int32) { born[v] = i })
		likeArgument(n, means, p, born)
		if x, y := castValues(n); x >= 0 && len(n.Trace) > 0 {
			means[y] = x
		}
	}
	for i := range p.Results {
		r := &p.Results[i]
		for range len(means) {
			x, ok := means[r.Value]
			if !ok || !usedOutside(p, born[r.Value], born[x], len(p.Nodes)) {
				break
			}
			r.Value = x
		}
	}
}

// likeArgument replaces x by the cast's argument in y.type_as(x) if a cast inside another expression has renamed x, as
// in norm(x.float()).
func likeArgument(n *export.Node, means map[int32]int32, p *export.Program, born []int) {
	if n.Target != "torch.ops.aten.type_as.default" || len(n.Trace) == 0 {
		return
	}
	other := findArgument(n, "other")
	typed := typeAttribute.FindStringSubmatch(n.Trace[len(n.Trace)-1].Source)
	if other == nil || other.Kind != export.Ref || typed == nil {
		return
	}
	x, ok := means[other.Ref]
	if !ok {
		return
	}
	source := p.Nodes[born[other.Ref]].Trace
	line := source[len(source)-1].Source
	casts := func(call string) bool { return hasWord(line, typed[1]+call) }
	if !strings.HasPrefix(line, typed[1]+" = ") && slices.ContainsFunc([]string{".float(", ".to(", ".type("}, casts) {
		other.Ref = x
	}
}

// hasWord reports whether a line contains a word, not as a part of a longer one.
func hasWord(line, word string) bool {
	part := func(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }
	for at := 0; ; {
		i := strings.Index(line[at:], word)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(word)
		if (begin == 0 || !part(line[begin-1])) && (end == len(line) || !part(line[end-1]) || !part(line[end])) {
			return true
		}
		at = begin + 1
	}
}

var typeAttribute = regexp.MustCompile(`\.type_as\((\w+)\)`)

// castValues returns the argument and the result of a cast to fp32, -1 of other nodes.
func castValues(n *export.Node) (x, y int32) {
	switch shortTarget(n.Target) {
	case "to.dtype", "to.dtype_layout", "to.device":
		a := findArgument(n, "self")
		if a != nil && a.Kind == export.Ref && len(n.Outputs) == 1 && n.Outputs[0].Kind == export.Ref &&
			n.CastsNothing {
			return a.Ref, n.Outputs[0].Ref
		}
	}
	return -1, -1
}

// renameArgument replaces results of casts by their arguments, if node i uses the arguments.
func renameArgument(a *export.Argument, means map[int32]int32, i int, p *export.Program, born []int) {
	if a.Kind == export.Ref {
		for range len(means) {
			x, ok := means[a.Ref]
			if !ok || !usedOutside(p, born[a.Ref], born[x], i) &&
				!withinExpression(&p.Nodes[born[a.Ref]], &p.Nodes[i]) {
				return
			}
			a.Ref = x
		}
	}
	for k := range a.List {
		renameArgument(&a.List[k], means, i, p, born)
	}
}

// withinExpression reports whether the result of a cast is used only in the same expression, and another line of the
// same function uses the tensor that was cast, as in: variance = x.to(torch.float32).pow(2).mean(-1), and then x *
// torch.rsqrt(variance).
func withinExpression(cast, use *export.Node) bool {
	depth := len(cast.Trace) - 1
	if len(use.Trace) <= depth {
		return false
	}
	at, of := &use.Trace[depth], &cast.Trace[depth]
	if at.File != of.File || at.Func != of.Func || at.Line == of.Line {
		return false
	}
	name := continuesPattern.FindStringSubmatch(of.Source)
	return name != nil && hasWord(at.Source, name[1])
}

var continuesPattern = regexp.MustCompile(`(\w+)\.(?:to\([\w.]*\)|float\(\))\.\w+\(`)

// usedOutside reports whether node use and the argument of the cast at node c are both outside of the code that made
// the cast: the code ended before use and began after the argument was made. The code is the module's call, or, if the
// source line does not show the cast, the function that the line calls.
func usedOutside(p *export.Program, c, argument, use int) bool {
	n := &p.Nodes[c]
	source := n.Trace[len(n.Trace)-1].Source
	shown := strings.Contains(source, ".to(") || strings.Contains(source, ".float()") ||
		strings.Contains(source, ".type(")
	within := func(k int) bool {
		m := &p.Nodes[k]
		if m.Block == export.Close || len(m.Trace) == 0 {
			return true
		}
		if !isPrefix(n.Stack, m.Stack) || len(m.Trace) < len(n.Trace) {
			return false
		}
		return shown || m.Trace[len(n.Trace)-1].Line == n.Trace[len(n.Trace)-1].Line
	}
	if shown && len(n.Stack) < 2 {
		return false // the model's own forward
	}
	begun := c
	for begun > 0 && within(begun-1) {
		begun--
	}
	if argument >= begun {
		return false // the code has made it itself
	}
	ended := c
	for ended < use && within(ended) {
		ended++
	}
	return ended < use || use == len(p.Nodes)
}
