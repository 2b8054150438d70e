package pt2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
)

// correctCastTypes makes casts depend on the data types of a run. An exported graph holds the type that a cast had
// during export: x.to(input_dtype) of an fp32 model is fp32, which is wrong under autocast and with half-precision
// weights. A cast that changed nothing during export, and whose source line names no type, therefore casts to the type
// of the module's argument.
func correctCastTypes(p *export.Program) {
	marks := typeMarks(p)
	correctCastTypesOf(p)
	for arg, under := range marks { // casts without a mark are judged by their source lines
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
			out[arg] = export.AutocastKeeps
			if m.Half {
				out[arg] = export.AutocastHalves
			}
		}
	}
	return out
}

func correctCastTypesOf(p *export.Program) {
	known := map[int32]int64{} // the data type of each value during export
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
			// moves the tensor and keeps its type
			case len(n.Trace) > 0 && moveOnlyPattern.MatchString(n.Trace[len(n.Trace)-1].Source):
				*d = typeLikeValues(x.Ref)
			case !mentionsFP32(n):
				*d = export.Argument{Kind: export.TypeOf, List: argumentsSoFar(p, i)}
			}
		case "zeros.default", "ones.default", "full.default":
			d := findArgument(n, "dtype")
			if d == nil || d.Kind != export.Type || d.Int != int64(export.Float) {
				continue
			}
			if isInMaskFunction(n) { // additive masks have the type of the embeddings
				*d = export.Argument{Kind: export.TypeOf, List: argumentsSoFar(p, i)}
			} else if q, ok := maskedQuery(p, u, i); ok {
				*d = typeLikeValues(q)
			}
		}
	}
}

func typeLikeValues(values ...int32) export.Argument {
	return export.Argument{Kind: export.TypeOf, List: lists.Map(values, func(v int32) export.Argument {
		return export.Argument{Kind: export.Ref, Ref: v}
	})}
}

var moveOnlyPattern = regexp.MustCompile(`\.to\((device=)?[\w.]*\bdevice\)`)

// maskedQuery returns the query of the attention call whose mask depends on the result of node i. PyTorch needs query
// and mask in one data type.
func maskedQuery(p *export.Program, u valueUses, i int) (query int32, ok bool) {
	mask := soleResult(&p.Nodes[i])
	for mask >= 0 && len(u.users[mask]) > 0 {
		n := &p.Nodes[u.users[mask][0]]
		switch {
		case n.Target == whereTarget && inputOf(n, "self") == mask:
			mask = soleResult(n)
		case n.Target == attentionTarget && inputOf(n, "attn_mask") == mask:
			q := inputOf(n, "query")
			return q, q >= 0 && u.producer[q] >= 0 && u.producer[q] < i
		default:
			return 0, false
		}
	}
	return 0, false
}

func findArgument(n *export.Node, name string) *export.Argument {
	if i := slices.IndexFunc(n.Inputs, func(in export.NamedArgument) bool { return in.Name == name }); i >= 0 {
		return &n.Inputs[i].Argument
	}
	return nil
}

// fp32Sources are parts of source lines that name fp32, or that call transformers' losses, which compute in fp32.
var fp32Sources = []string{"torch.float", ".float()", "dtype=float", "self.loss_function("}

func mentionsFP32(n *export.Node) bool {
	if len(n.Trace) == 0 {
		return true
	}
	source := n.Trace[len(n.Trace)-1].Source
	return source == "" || slices.ContainsFunc(fp32Sources, func(t string) bool { return strings.Contains(source, t) })
}

// argumentsSoFar returns the values from outside that node i's module used before it, except weights and buffers.
func argumentsSoFar(p *export.Program, i int) []export.Argument {
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

// restoreCastArguments undoes an effect of tracing. A cast that changes nothing returns its argument, and
// torch.export names tensors by identity. After such a cast, the graph therefore uses the cast's name for the
// argument everywhere, even where the model's code uses the argument itself, such as in the residual connection
// around a norm. Code outside of the function that made the cast is changed to use the argument again if the argument
// also comes from outside of that function.
func restoreCastArguments(p *export.Program) {
	born := slices.Repeat([]int{-1}, p.Values)
	means := map[int32]int32{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k := range n.Inputs {
			restoreArgument(&n.Inputs[k].Argument, means, i, p, born)
		}
		eachOutput(n, func(v int32) { born[v] = i })
		restoreTypeAs(n, means, p, born)
		if x, y := fp32CastValues(n); x >= 0 && len(n.Trace) > 0 {
			means[y] = x
		}
	}
	for i := range p.Results {
		r := &p.Results[i]
		for range len(means) {
			x, ok := means[r.Value]
			if !ok || !isUsedOutsideCast(p, born[r.Value], born[x], len(p.Nodes)) {
				break
			}
			r.Value = x
		}
	}
}

// restoreTypeAs replaces x by the cast's argument in y.type_as(x) if a cast inside another expression, as in
// norm(x.float()), has renamed x.
func restoreTypeAs(n *export.Node, means map[int32]int32, p *export.Program, born []int) {
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

// fp32CastValues returns the argument and the result of a cast to fp32; -1 for other nodes.
func fp32CastValues(n *export.Node) (x, y int32) {
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

// restoreArgument replaces a cast's result in an argument of node i by the cast's argument if node i's code uses it.
func restoreArgument(a *export.Argument, means map[int32]int32, i int, p *export.Program, born []int) {
	if a.Kind == export.Ref {
		for range len(means) {
			x, ok := means[a.Ref]
			if !ok || !isUsedOutsideCast(p, born[a.Ref], born[x], i) &&
				!isCastInsideExpression(&p.Nodes[born[a.Ref]], &p.Nodes[i]) {
				return
			}
			a.Ref = x
		}
	}
	for k := range a.List {
		restoreArgument(&a.List[k], means, i, p, born)
	}
}

// isCastInsideExpression reports whether the model's code uses a cast's result only in the cast's own expression, and
// its argument elsewhere in the same function: variance = x.to(torch.float32).pow(2).mean(-1), and then x *
// torch.rsqrt(variance).
func isCastInsideExpression(cast, use *export.Node) bool {
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

// isUsedOutsideCast reports whether node use and the maker of the cast's argument are both outside of the code that
// made the cast at node c: that code ended before use and began after the argument was made. The code is the module's
// call or, if the source line does not show the cast, the function that the line calls.
func isUsedOutsideCast(p *export.Program, c, argument, use int) bool {
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
		return false // the code is the model's own forward
	}
	begun := c
	for begun > 0 && within(begun-1) {
		begun--
	}
	if argument >= begun {
		return false // the argument was made inside
	}
	ended := c
	for ended < use && within(ended) {
		ended++
	}
	return ended < use || use == len(p.Nodes)
}
