package export

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/internal/printable"
)

// schemaMajor is the major version of the schema that this package reads.
const schemaMajor = 8

// decoder builds a Program from model.json.
type decoder struct {
	scanner
	p      *Program
	graphs []*graph // innermost last
	traces map[string][]Frame
	paths  map[string]modulePath
	// numbered counts nodes.
	numbered int32
	// same has the value that another one is, where a nested graph calls it by another name.
	same map[int32]int32
	// inputs and outputs are the signature's descriptions of the graph's, names forward's names of its results.
	inputs  []Input
	outputs []string
	names   []string
}

type modulePath struct {
	path, class string
	stack       []string
	classes     []string
}

// graph is a graph that is being read: its names, and the positions of its parts in the text.
type graph struct {
	prefix string
	names  map[string]int32
	// metas has the types and sizes of tensors; they may come after their first use.
	metas, symbols  part
	inputs, outputs []Argument
}

// Decode reads the program of a model.json. Errors are one sentence.
func Decode(data []byte) (*Program, error) {
	d := &decoder{
		scanner: scanner{json: newJSON(data)}, p: &Program{Ranges: map[string]Range{}}, traces: map[string][]Frame{},
		paths: map[string]modulePath{}, same: map[int32]int32{},
	}
	major := -1
	sawGraph := false
	d.object(func(key string) {
		switch key {
		case "graph_module":
			sawGraph = true
			d.module()
		case "range_constraints":
			d.ranges()
		case "torch_version":
			d.p.Torch = d.optionalText()
		case "schema_version":
			d.object(func(key string) {
				if n := d.integer(); key == "major" {
					major = int(n)
				}
			})
		}
		if major >= 0 && major != schemaMajor && d.err == nil {
			d.err = schemaError(major)
		}
	})
	if _, err := d.json.ReadToken(); d.err == nil && !errors.Is(err, io.EOF) {
		d.fail("something follows the program")
	}
	switch {
	case d.err != nil:
		// Names in a file may hold anything.
		return nil, errors.New(printable.Line(d.err.Error()))
	case major < 0:
		return nil, errors.New("has no schema_version, so torch.export.save did not write it")
	case !sawGraph:
		return nil, errors.New("has no graph_module, so torch.export.save did not write it")
	}
	return d.p, nil
}

func schemaError(major int) error {
	return fmt.Errorf("is written in version %d of the export schema; vprof reads version %d (torch 2.6 to 2.15): "+
		"export the model with one of these", major, schemaMajor)
}

func (d *decoder) optionalText() string {
	if d.null() {
		return ""
	}
	return d.text()
}

func (d *decoder) ranges() {
	d.object(func(symbol string) {
		var r Range
		d.object(func(key string) {
			if d.null() {
				return
			}
			n := d.integer()
			switch key {
			case "min_val":
				r.Min = n
			case "max_val":
				r.Max = n
			}
		})
		d.p.Ranges[symbol] = r
	})
}

// module reads graph_module: the graph, what its inputs are, and the modules.
func (d *decoder) module() {
	g := &graph{names: map[string]int32{}}
	d.object(func(key string) {
		switch key {
		case "graph":
			d.graph(g)
		case "signature":
			d.signature()
		case "module_call_graph":
			d.moduleCalls()
		}
	})
	if d.err == nil {
		d.finish(g)
	}
}

// graph reads a graph and appends its nodes to the program's.
func (d *decoder) graph(g *graph) {
	d.graphs = append(d.graphs, g)
	d.object(func(key string) {
		switch key {
		case "inputs":
			d.array(func() { g.inputs = append(g.inputs, d.argument()) })
		case "nodes":
			d.array(d.node)
		case "outputs":
			d.array(func() { g.outputs = append(g.outputs, d.argument()) })
		case "tensor_values":
			g.metas = d.later()
		case "sym_int_values":
			g.symbols = d.later()
		}
	})
	d.graphs = d.graphs[:len(d.graphs)-1]
}

// valueOf returns the number of a name in the innermost graph. It is assigned at the name's first appearance: outputs
// of a graph precede its nodes.
func (d *decoder) valueOf(name string) int32 {
	g := d.graphs[len(d.graphs)-1]
	n, ok := g.names[name]
	if !ok {
		n = int32(d.p.Values)
		d.p.Values++
		d.p.Names = append(d.p.Names, g.prefix+name)
		g.names[name] = n
	}
	return n
}

// node reads a call.
func (d *decoder) node() {
	i := len(d.p.Nodes)
	d.p.Nodes = append(d.p.Nodes, Node{})
	n := Node{Number: d.numbered}
	d.numbered++
	var block *nested
	var trace string
	d.object(func(key string) {
		switch key {
		case "target":
			n.Target = d.text()
		case "inputs":
			block = d.nodeInputs(&n)
		case "outputs":
			d.array(func() { n.Outputs = append(n.Outputs, d.argument()) })
		case "metadata":
			d.object(func(key string) {
				switch key {
				case "nn_module_stack":
					m := d.stack(d.optionalText())
					n.Module, n.Class, n.Stack, n.Classes = m.path, m.class, m.stack, m.classes
				case "stack_trace":
					trace = d.optionalText()
				}
			})
		}
	})
	if d.err != nil {
		return
	}
	frames, known := d.traces[trace]
	if !known {
		frames = parseTrace(trace)
		d.traces[trace] = frames
	}
	n.Trace, n.Line = frames, ownLine(frames)
	d.p.Nodes[i] = n
	if block != nil {
		d.close(&d.p.Nodes[i], block)
	}
}

// stack reads the innermost module of "key,path,class;key,path,class".
func (d *decoder) stack(text string) modulePath {
	if m, ok := d.paths[text]; ok {
		return m
	}
	first, _, _ := strings.Cut(text, ";")
	if _, class, ok := strings.Cut(first, ",,"); ok && d.p.Class == "" {
		d.p.Class = class
	}
	last := text[strings.LastIndexByte(text, ';')+1:]
	_, rest, _ := strings.Cut(last, ",")
	comma := strings.LastIndexByte(rest, ',')
	m := modulePath{path: rest}
	if comma >= 0 {
		m = modulePath{path: rest[:comma], class: rest[comma+1:]}
	}
	for entry := range strings.SplitSeq(text, ";") {
		_, path, _ := strings.Cut(entry, ",")
		path, class, _ := strings.Cut(path, ",")
		m.stack, m.classes = append(m.stack, path), append(m.classes, class)
	}
	m.path, _, _ = strings.Cut(m.path, "@") // the second call of one module has a number: "act@1"
	d.paths[text] = m
	return m
}
