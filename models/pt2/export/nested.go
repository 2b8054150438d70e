package export

// Higher-order operators of torch.export for the body of a Python with statement, which is their graph argument.
const (
	setGrad    = "torch.ops.higher_order.wrap_with_set_grad_enabled"
	autocast   = "torch.ops.higher_order.wrap_with_autocast"
	checkpoint = "torch.ops.higher_order.tag_activation_checkpoint"
)

// nestedCall is a call of a higher-order operator with a graph as an argument.
type nestedCall struct {
	graph *graph
	// at is the graph's index in the call's arguments: the operator's own are before it, the graph's inputs after it.
	at int
}

// nodeInputs reads the arguments of a call, and for the higher-order operators above the nodes of the graph argument.
func (d *decoder) nodeInputs(n *Node) *nestedCall {
	var inner *nestedCall
	runs := n.Target == setGrad || n.Target == autocast || n.Target == checkpoint
	d.array(func() {
		var a NamedArgument
		d.object(func(key string) {
			switch key {
			case "name":
				a.Name = d.text()
			case "arg":
				d.object(func(tag string) {
					if tag != "as_graph" || !runs {
						a.Argument = d.taggedArgument(tag)
						return
					}
					a.Argument = Argument{Kind: Opaque}
					inner = &nestedCall{graph: d.nestedGraph(), at: len(n.Inputs)}
				})
			}
		})
		n.Inputs = append(n.Inputs, a)
	})
	return inner
}

// nestedGraph reads a graph argument: {"name": ..., "graph": {...}}.
func (d *decoder) nestedGraph() *graph {
	outer := d.graphs[len(d.graphs)-1]
	g := &graph{prefix: outer.prefix, names: map[string]int32{}}
	d.object(func(key string) {
		if key == "graph" {
			d.readGraph(g)
		}
	})
	return g
}

// closeBlock turns the call of a nested graph into the beginning of a block and appends the block's end. The graph's
// inputs become aliases of the call's arguments, the call's results aliases of the graph's outputs.
func (d *decoder) closeBlock(n *Node, in *nestedCall) {
	args := n.Inputs[in.at+1:]
	if len(args) != len(in.graph.inputs) {
		d.fail("%s is called with %d values, but its graph has %d inputs; export the model again",
			n.Target, len(args), len(in.graph.inputs))
		return
	}
	for i, a := range args {
		d.alias(in.graph.inputs[i], a.Argument)
	}
	results, given := flatten(nil, n.Outputs), flatten(nil, in.graph.outputs)
	if len(results) != len(given) {
		d.fail("%s has %d results, but its graph has %d; export the model again", n.Target, len(results), len(given))
		return
	}
	for i, r := range results {
		d.alias(r, given[i])
	}
	n.Block = blockOf(n)
	n.Inputs, n.Outputs = n.Inputs[:in.at], nil
	d.p.Nodes = append(d.p.Nodes, Node{Block: Close, Number: d.nodes - 1, Module: n.Module, Class: n.Class})
}

// alias records that arguments a and b are the same value.
func (d *decoder) alias(a, b Argument) {
	if a.Kind == Ref && b.Kind == Ref && a.Ref != b.Ref {
		d.aliases[a.Ref] = b.Ref
	}
}

func flatten(out, args []Argument) []Argument {
	for _, a := range args {
		if a.Kind == List {
			out = flatten(out, a.List)
		} else {
			out = append(out, a)
		}
	}
	return out
}

func blockOf(n *Node) Block {
	switch {
	case n.Target == autocast:
		return OpenAutocast
	case n.Target == checkpoint:
		return OpenPlain
	case len(n.Inputs) > 0 && n.Inputs[0].Kind == Boolean && n.Inputs[0].Int == 0:
		return OpenNoGrad
	default:
		return OpenGrad
	}
}

// replaceAliases gives each value a single number in all nodes and results.
func (d *decoder) replaceAliases() {
	if len(d.aliases) == 0 {
		return
	}
	find := func(v int32) int32 {
		for range len(d.aliases) + 1 { // a file may go round in circles
			next, ok := d.aliases[v]
			if !ok {
				return v
			}
			v = next
		}
		d.fail("two values are defined by each other; export the model again")
		return v
	}
	var fix func(args []Argument)
	fix = func(args []Argument) {
		for i := range args {
			if args[i].Kind == Ref {
				args[i].Ref = find(args[i].Ref)
			}
			fix(args[i].List)
		}
	}
	for i := range d.p.Nodes {
		n := &d.p.Nodes[i]
		for k := range n.Inputs {
			if n.Inputs[k].Kind == Ref {
				n.Inputs[k].Ref = find(n.Inputs[k].Ref)
			}
			fix(n.Inputs[k].List)
		}
		fix(n.Outputs)
	}
	for i := range d.p.Results {
		if r := &d.p.Results[i]; r.Value >= 0 {
			r.Value = find(r.Value)
		}
	}
}
