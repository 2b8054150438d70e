package export

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// graphFormat names what Marshal writes.
const graphFormat = "vprof.graph/v1"

// description is a program in a result file.
type description struct {
	Format string `json:"format"`
	// Program is the JSON of a Program, compressed, in base64.
	Program string `json:"program"`
}

// Marshal describes a program in a JSON object, so that results of it can be
// looked into where its file is not. Stack traces are left out.
func Marshal(p *Program) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(p); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(description{Format: graphFormat, Program: base64.StdEncoding.EncodeToString(packed.Bytes())})
}

// Unmarshal reads what Marshal has written.
func Unmarshal(data []byte) (*Program, error) {
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("no description of a graph: %w", err)
	}
	if d.Format != graphFormat {
		return nil, fmt.Errorf("a description in the format %q; this vprof reads %s", d.Format, graphFormat)
	}
	packed, err := base64.StdEncoding.DecodeString(d.Program)
	if err != nil {
		return nil, fmt.Errorf("a damaged description: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("a damaged description: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, mostExtra+1))
	if err != nil {
		return nil, fmt.Errorf("a damaged description: %w", err)
	}
	if len(text) > mostExtra {
		return nil, errors.New("a description that unpacks to more than 64 MiB")
	}
	p := new(Program)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("a damaged description: %w", err)
	}
	if err := p.complete(); err != nil {
		return nil, fmt.Errorf("a damaged description: %w", err)
	}
	return p, nil
}

// complete checks what [Decode] guarantees for programs that it reads: numbers of
// values are in range, and every block is closed.
func (p *Program) complete() error {
	if p.Values < 0 || p.Values > mostValues {
		return fmt.Errorf("%d values", p.Values)
	}
	open := 0
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !p.refersWithin(n) {
			return fmt.Errorf("node %d refers to a value that there is not", i)
		}
		switch n.Block {
		case Call:
		case Close:
			open--
		default:
			open++
		}
		if open < 0 {
			return fmt.Errorf("node %d closes what is not open", i)
		}
	}
	if open != 0 {
		return errors.New("a block that is not closed")
	}
	within := func(v int32) bool { return v >= 0 && int(v) < p.Values }
	for i := range p.Inputs {
		if v := p.Inputs[i].Value; v != -1 && !within(v) {
			return fmt.Errorf("input %d is a value that there is not", i)
		}
	}
	for i := range p.Results {
		if v := p.Results[i].Value; v != -1 && !within(v) {
			return fmt.Errorf("result %d is a value that there is not", i)
		}
	}
	p.Names = make([]string, p.Values)
	for i := range p.Names {
		p.Names[i] = fmt.Sprintf("value %d", i)
	}
	return p.check()
}

// refersWithin reports whether all values that a node names are there.
func (p *Program) refersWithin(n *Node) bool {
	within := func(v int32) bool { return v >= 0 && int(v) < p.Values }
	var check func(a Argument, depth int) bool
	check = func(a Argument, depth int) bool {
		return depth <= mostDepth && (a.Kind != Ref || within(a.Ref)) &&
			!slices.ContainsFunc(a.List, func(e Argument) bool { return !check(e, depth+1) })
	}
	return !slices.ContainsFunc(n.Inputs, func(a Named) bool { return !check(a.Argument, 0) }) &&
		!slices.ContainsFunc(n.Outputs, func(a Argument) bool { return !check(a, 0) }) &&
		!slices.ContainsFunc(n.Dies, func(v int32) bool { return !within(v) })
}
