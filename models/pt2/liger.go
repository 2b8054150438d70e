package pt2

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// ligerKernels returns the groups of nodes that liger-kernel replaces by its kernels. liger-kernel patches classes
// and functions of transformers by name.
func ligerKernels(p *export.Program) []export.KernelCall {
	var out []export.KernelCall
	u := findUses(p)
	for i := 0; i < len(p.Nodes); i++ {
		k, class, ok := liger.KernelsFor(p.Nodes[i].Class)
		if !ok || p.Nodes[i].Block != export.Call {
			continue
		}
		call := export.KernelCall{Begin: i, End: i + 1}
		switch {
		case class == k.Norm:
			call.Kernel, call.End = export.RMSNorm, endOfRun(p, i, isSameModuleCall)
			if k.Kind.OutOfPlace {
				call.Kernel = export.OutOfPlaceRMSNorm
			}
		case class == k.Gated:
			call.Kernel, call.Begin = export.GatedProduct, activationOf(p, u, i, k.Activation)
		case k.Rotary && rotaryFrame(&p.Nodes[i]) >= 0:
			call.Kernel, call.End = export.Rotary, endOfRun(p, i, isSameRotaryCall)
		default:
			continue
		}
		if call.Begin >= 0 && newLigerKernel(p, call) != nil {
			out = append(out, call)
		}
		i = call.End - 1
	}
	return out
}

func endOfRun(p *export.Program, begin int, alike func(a, b *export.Node) bool) int {
	end := begin + 1
	for end < len(p.Nodes) && p.Nodes[end].Block == export.Call && alike(&p.Nodes[begin], &p.Nodes[end]) {
		end++
	}
	return end
}

func isSameModuleCall(a, b *export.Node) bool { return slices.Equal(a.Stack, b.Stack) }

// isSameRotaryCall reports whether two nodes belong to the same call of apply_rotary_pos_emb.
func isSameRotaryCall(a, b *export.Node) bool {
	return isSameModuleCall(a, b) && rotaryFrame(b) >= 0 && a.Trace[rotaryFrame(a)] == b.Trace[rotaryFrame(b)]
}

// rotaryFrame returns the index of the frame whose line calls apply_rotary_pos_emb; -1 if there is none.
func rotaryFrame(n *export.Node) int {
	return slices.IndexFunc(n.Trace, func(f export.Frame) bool {
		return strings.Contains(f.Source, "apply_rotary_pos_emb(")
	})
}

// activationOf returns the node of the activation whose result node i multiplies; -1 if there is none.
func activationOf(p *export.Program, u valueUses, i int, activation string) int {
	n := &p.Nodes[i]
	if n.Target != multiplyTarget {
		return -1
	}
	for _, name := range []string{"self", "other"} {
		v := inputOf(n, name)
		if v < 0 || u.producer[v] < 0 || len(u.users[v]) != 1 {
			continue
		}
		made := u.producer[v]
		if op, _, _ := strings.Cut(shortTarget(p.Nodes[made].Target), "."); op == activation &&
			parentPath(p.Nodes[made].Module) == n.Module {
			return made
		}
	}
	return -1
}

// ligerKernel is a kernel of liger-kernel that replaces nodes of the graph.
type ligerKernel struct {
	nodes           []int // the replaced nodes; the kernel runs at the last one
	inputs, outputs []int32
	run             func(f *trace.Frame, in []*trace.Tensor) []*trace.Tensor
}

// newLigerKernel returns the kernel for a group of nodes; nil if the nodes compute something else.
func newLigerKernel(p *export.Program, c export.KernelCall) *ligerKernel {
	switch c.Kernel {
	case export.RMSNorm, export.OutOfPlaceRMSNorm:
		return normKernel(p, c)
	case export.Rotary:
		return rotaryKernel(p, c)
	case export.GatedProduct:
		return gatedKernel(p, c)
	}
	return nil
}

// normKernel returns LigerRMSNorm for a norm with a weight.
func normKernel(p *export.Program, c export.KernelCall) *ligerKernel {
	k, r := kernelSpan(p, c)
	weight := int32(-1)
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter && in.Name == p.Nodes[c.Begin].Module+".weight" {
			weight = in.Value
		}
	}
	if weight < 0 || len(r.inputs) != 1 || len(r.outputs) != 1 {
		return nil
	}
	k.inputs = append(k.inputs, weight)
	norm := liger.Norm{OutOfPlace: c.Kernel == export.OutOfPlaceRMSNorm}
	k.run = func(f *trace.Frame, in []*trace.Tensor) []*trace.Tensor {
		return []*trace.Tensor{norm.RMSNorm(f, in[0], in[1])}
	}
	return k
}

// rotaryKernel returns liger_rotary_pos_emb of queries, keys, cosines and sines. It returns rotated queries and keys.
func rotaryKernel(p *export.Program, c export.KernelCall) *ligerKernel {
	k, r := kernelSpan(p, c)
	if len(r.inputs) != 4 || len(r.outputs) != 2 {
		return nil
	}
	if maker := findUses(p).producer; maker[r.outputs[0]] > maker[r.outputs[1]] {
		slices.Reverse(r.outputs) // the last result is the queries'
	}
	var own [2][]int32
	var shared []int32
	q, keys := originsOf(p, r, r.outputs[0]), originsOf(p, r, r.outputs[1])
	for _, v := range r.inputs {
		switch {
		case q[v] && keys[v]:
			shared = append(shared, v)
		case q[v]:
			own[0] = append(own[0], v)
		case keys[v]:
			own[1] = append(own[1], v)
		}
	}
	if len(own[0]) != 1 || len(own[1]) != 1 || len(shared) != 2 {
		return nil
	}
	k.inputs = []int32{own[0][0], own[1][0], shared[0], shared[1]}
	k.run = func(f *trace.Frame, in []*trace.Tensor) []*trace.Tensor {
		q, k := liger.Rotate(f, in[0], in[1], in[2], in[3])
		return []*trace.Tensor{q, k}
	}
	return k
}

// originsOf returns the values from outside of a region that one of its results depends on.
func originsOf(p *export.Program, r *region, v int32) map[int32]bool {
	needed := map[int32]bool{v: true}
	for i := r.end - 1; i >= r.begin; i-- {
		n := &p.Nodes[i]
		needs := false
		eachOutput(n, func(v int32) { needs = needs || needed[v] })
		eachInput(n, func(v int32) { needed[v] = needed[v] || needs })
	}
	return needed
}

// gatedKernel returns LigerSiLUMulFunction or LigerGELUMulFunction for an activation and its product.
func gatedKernel(p *export.Program, c export.KernelCall) *ligerKernel {
	act, product := &p.Nodes[c.Begin], &p.Nodes[c.End-1]
	gate, active := inputOf(act, "self"), soleResult(act)
	up := inputOf(product, "self")
	if up == active {
		up = inputOf(product, "other")
	}
	if gate < 0 || active < 0 || up < 0 || up == active || soleResult(product) < 0 || c.Begin == c.End-1 {
		return nil
	}
	return &ligerKernel{
		nodes: []int{c.Begin, c.End - 1}, inputs: []int32{gate, up}, outputs: []int32{soleResult(product)},
		run: func(f *trace.Frame, in []*trace.Tensor) []*trace.Tensor {
			return []*trace.Tensor{liger.GatedProduct(f, in[0], in[1])}
		},
	}
}

// kernelSpan returns a kernel that replaces all nodes of a call, and the call's nodes as a region.
func kernelSpan(p *export.Program, c export.KernelCall) (*ligerKernel, *region) {
	r := &region{begin: c.Begin, end: c.End}
	r.findBorders(p)
	k := &ligerKernel{inputs: slices.Clone(r.inputs), outputs: r.outputs}
	for i := c.Begin; i < c.End; i++ {
		k.nodes = append(k.nodes, i)
	}
	return k, r
}

// withLigerKernels returns the graph with liger-kernel's kernels. Each kernel runs at the last node that it replaces
// and then frees the values that the replaced nodes freed.
func (g *graph) withLigerKernels() *graph {
	p := *g.Program
	p.Nodes = slices.Clone(p.Nodes)
	out := g.withProgram(&p)
	u := findUses(&p)
	for _, c := range p.Kernels {
		k := newLigerKernel(g.Program, c)
		if k == nil {
			continue
		}
		var dies []int32
		made := map[int32]bool{}
		for _, i := range k.nodes {
			n := &p.Nodes[i]
			eachOutput(n, func(v int32) { made[v] = !slices.Contains(k.outputs, v) })
			dies = append(dies, n.Dies...)
			n.Dies, out.calls[i].skip = nil, true
		}
		last := k.nodes[len(k.nodes)-1]
		p.Nodes[last].Dies = slices.DeleteFunc(dies, func(v int32) bool { return made[v] })
		p.Nodes[last].Outputs = nil
		for _, v := range k.outputs {
			p.Nodes[last].Outputs = append(p.Nodes[last].Outputs, export.Argument{Kind: export.Ref, Ref: v})
		}
		out.calls[last].skip, out.calls[last].replacement = false, k.runAt(&p.Nodes[last])
		if c.Kernel == export.Rotary {
			castToQuery(&p, u, last, k.outputs[0])
		}
	}
	return out
}

// castToQuery makes eager attention cast its weights to the data type of the query that liger's rotary kernel
// returns. That is autocast's type; without the kernel, multiplying by fp32 cosines makes the query fp32. The graph
// itself casts to the type of the module's argument.
func castToQuery(p *export.Program, u valueUses, from int, query int32) {
	for i := from; i < len(p.Nodes) && p.Nodes[i].Module == p.Nodes[from].Module; i++ {
		n := &p.Nodes[i]
		x, d := inputOf(n, "self"), findArgument(n, "dtype")
		if x < 0 || d == nil || d.Kind != export.TypeOf || u.producer[x] < 0 ||
			shortTarget(p.Nodes[u.producer[x]].Target) != "softmax.int" {
			continue
		}
		n.Inputs = slices.Clone(n.Inputs)
		*findArgument(n, "dtype") = typeLikeValues(query)
	}
}

func (k *ligerKernel) runAt(n *export.Node) func(w *nodeRunner) []aten.Value {
	return func(w *nodeRunner) []aten.Value {
		in := make([]*trace.Tensor, len(k.inputs))
		for i, v := range k.inputs {
			if in[i] = w.tensor(v); in[i] == nil {
				w.raiseAt(n, errors.New("the kernel of liger-kernel needs a tensor here, but the graph has none; "+
					"leave out --liger"))
			}
		}
		out := lists.Map(k.run(w.frame, in), func(x *trace.Tensor) aten.Value { return x })
		return out
	}
}

// ligerUnsupportedReason returns the reason why liger-kernel changes nothing in the graph; empty if it does.
func ligerUnsupportedReason(p *export.Program) string {
	u := findUses(p)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		k, class, ok := liger.KernelsFor(n.Class)
		switch {
		case liger.IsUndescribed(n.Class):
			return fmt.Sprintf("liger-kernel 0.8 has kernels for the file of %s that vprof does not describe "+
				"(experts, images, multipliers or other losses)", n.Class)
		case ok && class == k.Gated && n.Target == multiplyTarget && activationOf(p, u, i, k.Activation) < 0:
			return fmt.Sprintf("liger-kernel's %s has no other activation than %s, and %s has another", class,
				k.Activation, n.Module)
		}
	}
	if len(p.Kernels) > 0 || hasLigerLoss(p) {
		return ""
	}
	return fmt.Sprintf("nothing in this graph is what liger-kernel 0.8 replaces, which are classes of transformers "+
		"(LlamaRMSNorm, LlamaMLP and others) by their names; the model is %s",
		cmp.Or(p.Class, "of no class that the file names"))
}

// ligerFindings describes the parts of the graph that liger-kernel computes.
func ligerFindings(p *export.Program, c models.Case) string {
	counts := map[string]int{}
	for _, k := range p.Kernels {
		counts[ligerKernelNames[k.Kernel]]++
	}
	var parts []string
	for _, word := range []string{"norms", "turns of queries and keys", "feed-forward products"} {
		if counts[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[word], word))
		}
	}
	switch {
	case c.IsSwitchOn(fusedLoss), hasLigerLoss(p) && c.Loss == Output && !c.IsSwitchOn(plainLoss):
		parts = append(parts, "scores and loss")
	case !c.IsSwitchOn(plainLoss):
		parts = append(parts, "not the loss, which is not computed by a class of transformers whose forward it "+
			"replaces (capture a causal LM with its labels, or give --set fused-loss=1)")
	}
	return "liger: what liger-kernel computes in this graph: " + strings.Join(parts, ", ")
}

var ligerKernelNames = map[export.Kernel]string{
	export.RMSNorm: "norms", export.OutOfPlaceRMSNorm: "norms", export.Rotary: "turns of queries and keys",
	export.GatedProduct: "feed-forward products",
}

// hasLigerLoss reports whether liger-kernel replaces the forward that computes logits and loss.
func hasLigerLoss(p *export.Program) bool {
	return slices.ContainsFunc(p.Nodes, func(n export.Node) bool {
		k, class, ok := liger.KernelsFor(n.Class)
		return ok && n.Target == crossEntropyTarget && class == k.Loss
	})
}

// applyLiger replaces nodes by liger-kernel's kernels if the case uses liger.
func (t *task) applyLiger() error {
	if !t.c.Liger {
		return nil
	}
	for _, c := range t.g.Kernels {
		for _, r := range t.regions {
			if (r.begin <= c.Begin && c.Begin < r.end) != (r.begin < c.End && c.End <= r.end) {
				return fmt.Errorf("liger-kernel replaces %s and operators around it; leave the module out of --set "+
					"checkpoint=", t.g.Nodes[c.Begin].Module)
			}
		}
	}
	t.g = t.g.withLigerKernels()
	return nil
}
