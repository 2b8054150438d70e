package export

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
)

// graphFormat is the format name of the JSON that Describe writes.
const graphFormat = "vprof.graph/v2"

// description is a program inside a result file: the compressed archive entries that vprof reads, and cuDNN's answers.
type description struct {
	Format string               `json:"format"`
	Model  []byte               `json:"model"`
	Extra  []byte               `json:"extra,omitempty"`
	Asked  cudnnanswers.Answers `json:"asked,omitempty"`
}

// Describe returns the program as a JSON object for a result file. [Restore] reads it, without the .pt2 file.
func (p *Program) Describe() ([]byte, error) {
	d := description{Format: graphFormat, Asked: p.Asked}
	var err error
	if d.Model, err = compress(p.model); err == nil && p.extra != nil {
		d.Extra, err = compress(p.extra)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// Restore reads the program from the result of [Program.Describe], as [Read] does.
func Restore(data []byte) (*Program, error) {
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("the model in the file is not the description of a graph: %w; name the .pt2 file again",
			err)
	}
	if d.Format != graphFormat {
		return nil, fmt.Errorf("the case holds its .pt2 model in the format %q, but this vprof reads %s; plan the "+
			".pt2 file again", d.Format, graphFormat)
	}
	model, err := input.Decompress(d.Model, mostModel)
	var extra []byte
	if err == nil && d.Extra != nil {
		extra, err = input.Decompress(d.Extra, mostExtra)
	}
	if err != nil {
		return nil, fmt.Errorf("the description of the model's graph is damaged: %w; make the file again from the "+
			".pt2 model", err)
	}
	p, err := decode(model, extra)
	if err != nil {
		return nil, fmt.Errorf("the description of the model's graph is damaged: %w; make the file again from the "+
			".pt2 model", err)
	}
	p.Asked = d.Asked
	return p, nil
}

func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}
