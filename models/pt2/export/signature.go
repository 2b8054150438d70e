package export

import (
	"encoding/json"
	"fmt"
)

// readSignature reads the roles of the graph's inputs and the kinds of its outputs.
func (d *decoder) readSignature() {
	d.object(func(key string) {
		switch key {
		case "input_specs":
			d.array(func() { d.object(d.inputSpec) })
		case "output_specs":
			d.array(func() { d.object(func(kind string) { d.outputs = append(d.outputs, kind) }) })
		}
	})
}

// inputSpec reads the description of one input: {"parameter": {"arg": ..., "parameter_name": "w"}}.
func (d *decoder) inputSpec(kind string) {
	role, known := map[string]Role{"parameter": Parameter, "buffer": Buffer, "tensor_constant": Constant}[kind]
	in := Input{Role: role, Value: -1}
	if !known {
		in.Role = UserInput
	}
	d.object(func(key string) {
		switch key {
		case "parameter_name", "buffer_name", "tensor_constant_name", "name":
			in.Name = d.text()
		}
	})
	d.inputs = append(d.inputs, in)
}

// moduleCalls reads the paths of the modules, and the names of forward's results from the model's own signature.
func (d *decoder) moduleCalls() {
	d.array(func() {
		path, spec := "", ""
		d.object(func(key string) {
			switch key {
			case "fqn":
				path = d.text()
			case "signature":
				if d.null() {
					return
				}
				d.object(func(key string) {
					if key == "out_spec" && path == "" {
						spec = d.text()
					}
				})
			}
		})
		d.p.Modules = append(d.p.Modules, path)
		if spec != "" {
			d.names = resultNames(spec)
		}
	})
}

// treeSpec is a node of a serialized structure of torch.utils._pytree.
type treeSpec struct {
	Type     *string    `json:"type"`
	Context  string     `json:"context"`
	Children []treeSpec `json:"children_spec"`
}

// resultNames returns the names of the leaves of forward's result structure: keys of dicts, fields of dataclasses, and
// indices elsewhere. A single result and an unknown structure have no names.
func resultNames(spec string) []string {
	var version json.RawMessage
	var root treeSpec
	if json.Unmarshal([]byte(spec), &[]any{&version, &root}) != nil {
		return nil
	}
	var names []string
	var walk func(t treeSpec, path string)
	walk = func(t treeSpec, path string) {
		if t.Type == nil {
			names = append(names, path)
			return
		}
		var keys []any
		_ = json.Unmarshal([]byte(t.Context), &keys) // others have numbers
		if len(keys) == 2 {
			if fields, ok := keys[0].([]any); ok { // of a dataclass: the set ones, and the ones that are None
				keys = fields
			}
		}
		for i, c := range t.Children {
			key := fmt.Sprint(i)
			if i < len(keys) {
				key = fmt.Sprint(keys[i])
			}
			if path != "" {
				key = path + "." + key
			}
			walk(c, key)
		}
	}
	walk(root, "")
	return names
}

// finish completes the program from the outermost graph and the signature, and checks it.
func (d *decoder) finish(g *graph) {
	if len(g.inputs) != len(d.inputs) {
		d.err = fmt.Errorf("the graph has %d inputs, but its signature names %d; export the model again",
			len(g.inputs), len(d.inputs))
		return
	}
	if len(d.outputs) > 0 && len(g.outputs) != len(d.outputs) {
		d.err = fmt.Errorf("the graph has %d outputs, but its signature names %d; export the model again",
			len(g.outputs), len(d.outputs))
		return
	}
	wanted := map[int32]int{}
	for i, a := range g.inputs {
		if a.Kind == Ref {
			d.inputs[i].Value = a.Ref
			wanted[a.Ref] = i
			if d.inputs[i].Name == "" {
				d.inputs[i].Name = d.p.Names[a.Ref]
			}
			d.inputs[i].Number = true
		}
	}
	d.p.Inputs = d.inputs
	at := 0
	for i, a := range g.outputs {
		if i < len(d.outputs) && d.outputs[i] != "user_output" && d.outputs[i] != "loss_output" {
			continue // a buffer that forward has changed
		}
		r := Result{Value: -1}
		if at < len(d.names) {
			r.Name = d.names[at]
		}
		at++
		if a.Kind == Ref {
			r.Value = a.Ref
		}
		d.p.Results = append(d.p.Results, r)
	}
	d.readTensorMetas(g, wanted)
	d.readSymbolicInputs(g, wanted)
	d.replaceAliases()
	if d.err == nil {
		d.err = d.p.check()
	}
}

// readTensorMetas reads dtypes and sizes of the graph's inputs and results. wanted maps an input's value to its index.
func (d *decoder) readTensorMetas(g *graph, wanted map[int32]int) {
	results := map[int32]*Result{}
	for i := range d.p.Results {
		if r := &d.p.Results[i]; r.Value >= 0 {
			results[r.Value] = r
		}
	}
	d.readDeferred(g.metas, func(name string) {
		v, known := g.names[name]
		i, input := wanted[v]
		switch r := results[v]; {
		case known && input:
			d.inputs[i].Number = false
			d.readTensorMeta(&d.inputs[i])
		case known && r != nil:
			var m Input
			d.readTensorMeta(&m)
			r.Type, r.Dims = m.Type, len(m.Sizes)
		}
	})
}

func (d *decoder) readTensorMeta(in *Input) {
	d.object(func(key string) {
		switch key {
		case "dtype":
			in.Type = ScalarType(d.integer())
		case "requires_grad":
			in.RequiresGrad = d.boolean()
		case "sizes":
			in.Sizes = nil
			d.array(func() { in.Sizes = append(in.Sizes, d.size()) })
		case "strides":
			in.Strides = nil
			d.array(func() { in.Strides = append(in.Strides, d.size()) })
		}
	})
}

// readSymbolicInputs reads the sizes of inputs that are integers.
func (d *decoder) readSymbolicInputs(g *graph, wanted map[int32]int) {
	d.readDeferred(g.symbols, func(name string) {
		v, known := g.names[name]
		i, input := wanted[v]
		if known && input {
			d.inputs[i].Size = d.size()
		}
	})
}

// size reads a dimension: {"as_int": 3} or {"as_expr": {"expr_str": ..., "hint": ...}}.
func (d *decoder) size() Size {
	var s Size
	d.object(func(key string) {
		switch key {
		case "as_int":
			s = Size{Int: d.integer()}
		case "as_expr":
			d.object(func(key string) {
				if key != "expr_str" {
					return
				}
				text := d.text()
				if d.err != nil {
					return
				}
				e, err := ParseExpr(text)
				if err != nil {
					d.fail("%v", err)
				}
				s = Size{Expr: e}
			})
		}
	})
	return s
}
