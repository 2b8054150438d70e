package export

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/internal/printable"
)

// schemaMajor is the major version of the export schema (torch/_export/serde/schema.py) that this package reads.
const schemaMajor = 8

// decoder builds a [Program] from model.json.
type decoder struct {
	scanner
	p      *Program
	graphs []*graph // innermost last
	traces map[string][]Frame
	paths  map[string]modulePath
	// nodes is the number of nodes that were read so far, over all graphs.
	nodes int32
	// aliases maps a value to the one that it equals, where a nested graph has another name for it.
	aliases map[int32]int32
	// inputs and outputs are the graph's, as its signature describes them; names are the names of forward's results.
	inputs  []Input
	outputs []string
	names   []string
}

type modulePath struct {
	path, class string
	stack       []string
	classes     []string
}

// graph is a graph of model.json that is being read: the numbers of its named values, and its inputs and outputs.
type graph struct {
	prefix string
	names  map[string]int32
	// metas holds the JSON of the tensors' dtypes and sizes, symbols that of symbolic sizes.
	metas, symbols  deferredValue
	inputs, outputs []Argument
}

// Decode reads the program of a model.json. The text of an error is one sentence without its subject, the file.
func Decode(data []byte) (*Program, error) {
	d := &decoder{
		scanner: scanner{json: newJSON(data)}, p: &Program{Ranges: map[string]Range{}}, traces: map[string][]Frame{},
		paths: map[string]modulePath{}, aliases: map[int32]int32{},
	}
	major := -1
	sawGraph := false
	d.object(func(key string) {
		switch key {
		case "graph_module":
			sawGraph = true
			d.readModule()
		case "range_constraints":
			d.readRanges()
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
		d.fail("text follows the end of the program; export the model again")
	}
	switch {
	case d.err != nil:
		// Names in a file may hold control characters.
		return nil, errors.New(printable.Line(d.err.Error()))
	case major < 0:
		return nil, errors.New("the program has no schema_version, so torch.export.save did not write it; export the " +
			"model with torch.export.save or vprof capture")
	case !sawGraph:
		return nil, errors.New("the program has no graph_module, so torch.export.save did not write it; export the " +
			"model with torch.export.save or vprof capture")
	}
	return d.p, nil
}

func schemaError(major int) error {
	return fmt.Errorf("the program is written in version %d of the export schema; vprof reads version %d (torch 2.6 "+
		"to 2.15): export the model with one of these releases", major, schemaMajor)
}

func (d *decoder) optionalText() string {
	if d.null() {
		return ""
	}
	return d.text()
}

func (d *decoder) readRanges() {
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

// readModule reads graph_module: the graph, the roles of its inputs and outputs, and the paths of the modules.
func (d *decoder) readModule() {
	g := &graph{names: map[string]int32{}}
	d.object(func(key string) {
		switch key {
		case "graph":
			d.readGraph(g)
		case "signature":
			d.readSignature()
		case "module_call_graph":
			d.moduleCalls()
		}
	})
	if d.err == nil {
		d.finish(g)
	}
}

// readGraph reads a graph and appends its nodes to the program's nodes.
func (d *decoder) readGraph(g *graph) {
	d.graphs = append(d.graphs, g)
	d.object(func(key string) {
		switch key {
		case "inputs":
			d.array(func() { g.inputs = append(g.inputs, d.argument()) })
		case "nodes":
			d.array(d.readNode)
		case "outputs":
			d.array(func() { g.outputs = append(g.outputs, d.argument()) })
		case "tensor_values":
			g.metas = d.deferValue()
		case "sym_int_values":
			g.symbols = d.deferValue()
		}
	})
	d.graphs = d.graphs[:len(d.graphs)-1]
}

// valueOf returns the number of a named value in the innermost graph. The number is assigned at the name's first
// appearance, since a graph lists its outputs before its nodes.
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

// readNode reads a node of the graph: one operator call.
func (d *decoder) readNode() {
	i := len(d.p.Nodes)
	d.p.Nodes = append(d.p.Nodes, Node{})
	n := Node{Number: d.nodes}
	d.nodes++
	var block *nestedCall
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
					m := d.parseModules(d.optionalText())
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
		d.closeBlock(&d.p.Nodes[i], block)
	}
}

// parseModules reads a node's nn_module_stack, "key,path,class;key,path,class": the modules around it, outermost first.
func (d *decoder) parseModules(text string) modulePath {
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
