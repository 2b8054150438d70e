package script

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// Convolution passes and element types by their names in the stub libraries' questions.
var (
	operations = map[string]cudnn.Direction{"fprop": cudnn.Forward, "dgrad": cudnn.GradInput, "wgrad": cudnn.GradWeight}
	types      = map[string]cudnn.DType{"float": cudnn.F32, "half": cudnn.F16, "bfloat16": cudnn.BF16}
	sizes      = map[string]int64{"float": 4, "half": 2, "bfloat16": 2, "double": 8}
)

// A question asks for a size that a library chooses, such as cuDNN's workspace.
type question struct {
	// asked is the question in the form that cuDNN answers; empty if cuDNN cannot answer it without a GPU.
	asked string
	// compiled reports whether the question is about a kernel that cuDNN compiles at run time.
	compiled bool
	// convolution is the convolution that the question is about; nil for other questions.
	convolution *query.Question
	// engine is the convolution's engine in cuDNN; the zero engine is the one that PyTorch chooses.
	engine convolutionEngine
	// rule returns vprof's own answer in bytes; nil if it has none.
	rule func(*cudnn.Rules, cudnn.GPU) int64
}

// A convolutionEngine is a cuDNN implementation of a convolution. With cudnn.benchmark PyTorch tries several.
type convolutionEngine struct {
	list string // "proposal" or "fallback"; empty for the engine of PyTorch's choice
	at   int
	// notes reports whether the question asks for the engine's numerical notes, by which PyTorch excludes engines that
	// are not deterministic or that use TF32.
	notes bool
}

// engineOf returns the engine that a question names.
func engineOf(given map[string]string) (e convolutionEngine, err error) {
	_, e.notes = given["notes"]
	for _, list := range []string{"proposal", "fallback"} {
		if at, named := given[list]; named {
			e.list = list
			e.at, err = strconv.Atoi(at)
		}
	}
	if e.at < 0 {
		err = fmt.Errorf("invalid engine %s=%d: need 0 or more", e.list, e.at)
	}
	return e, err
}

// parseQuestion parses one line of a stub library; package stubs documents the format.
func parseQuestion(line string) (question, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return question{}, fmt.Errorf("invalid question %q: need an operation and its values", line)
	}
	if words[0] == "graph" {
		return question{asked: line, compiled: true}, nil
	}
	given := map[string]string{}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		given[key] = value
	}
	switch words[0] {
	case "conv":
		q, err := parseConvolution(words[1], given)
		e, wrong := engineOf(given)
		return question{asked: q.String(), convolution: &q, engine: e, rule: func(r *cudnn.Rules, b cudnn.GPU) int64 {
			return workspaceOf(r, b, q)
		}}, errors.Join(err, wrong)
	case "rnn":
		r, err := parseRNN(given)
		return question{rule: func(_ *cudnn.Rules, b cudnn.GPU) int64 {
			if words[1] == "reserve" {
				return r.Reserve()
			}
			return r.Workspace(b.Capability)
		}}, err
	case "norm":
		n, err := batchNormWorkspace(words[1], given)
		return question{rule: constantBytes(n)}, err
	}
	return question{}, fmt.Errorf("unknown operation in question %q", line)
}

func constantBytes(n int64) func(*cudnn.Rules, cudnn.GPU) int64 {
	return func(*cudnn.Rules, cudnn.GPU) int64 { return n }
}

func workspaceOf(r *cudnn.Rules, b cudnn.GPU, q query.Question) int64 {
	allocations := r.Workspaces(q.Config, q.Operation, b)
	if len(allocations) == 0 {
		return 0
	}
	return allocations[len(allocations)-1] // copies of tensors come before it
}

// parseRNN parses a question about an RNN layer.
func parseRNN(given map[string]string) (cudnn.RNN, error) {
	modes := map[string]cudnn.RNNMode{"rnn": cudnn.SimpleRNN, "gru": cudnn.GRU, "lstm": cudnn.LSTM}
	mode, known := modes[given["mode"]]
	element, sized := sizes[given["dtype"]]
	if !known || !sized {
		return cudnn.RNN{}, fmt.Errorf("unknown recurrent layer: mode=%q, dtype=%q", given["mode"], given["dtype"])
	}
	r := cudnn.RNN{Mode: mode, Element: element, Training: given["training"] == "1", Dropout: given["dropout"] == "1"}
	for key, to := range map[string]*int64{
		"length": &r.Length, "batch": &r.Batch, "inputs": &r.Inputs, "hidden": &r.Hidden, "layers": &r.Layers,
		"directions": &r.Directions, "packed": &r.Packed,
	} {
		var err error
		if *to, err = strconv.ParseInt(given[key], 10, 64); err != nil {
			return r, fmt.Errorf("%s: %w", key, err)
		}
	}
	return r, nil
}

// batchNormWorkspace returns the workspace of a batch norm over a channels-last tensor.
func batchNormWorkspace(pass string, given map[string]string) (int64, error) {
	x, err := parseNumbers(given["x"])
	if err != nil || len(x) < 3 || x[1] < 1 {
		return 0, fmt.Errorf("invalid sizes x=%q of a batch norm: %w", given["x"], err)
	}
	n := cudnn.BatchNorm{Channels: x[1], Rows: 1, Half: sizes[given["dtype"]] == 2}
	for i, size := range x {
		if i != 1 {
			n.Rows *= size
		}
	}
	if pass == "backward" {
		return n.Backward(), nil
	}
	return n.Forward(), nil
}

// parseConvolution parses a question about a convolution: pass, types, and tensors as sizes and strides. The number of
// groups is the number of channels of x divided by the number in w.
func parseConvolution(pass string, given map[string]string) (query.Question, error) {
	var q query.Question
	operation, known := operations[pass]
	if !known {
		return q, fmt.Errorf("unknown operation %q", pass)
	}
	lists := map[string][]int64{}
	for _, key := range []string{"x", "w", "y", "pad", "stride", "dilation"} {
		dims, _, _ := strings.Cut(given[key], ";")
		list, err := parseNumbers(dims)
		if err != nil {
			return q, fmt.Errorf("%s: %w", key, err)
		}
		lists[key] = list
	}
	c, err := convolutionOf(lists)
	if err != nil {
		return q, err
	}
	if c.DType, known = types[given["dtype"]]; !known {
		return q, fmt.Errorf("unknown type %q", given["dtype"])
	}
	if channelsLast(given["x"]) {
		c.Layout = cudnn.ChannelsLast
	}
	return query.NewQuestion(c, operation), nil
}

// convolutionOf returns the convolution whose tensors have the given sizes.
func convolutionOf(sizes map[string][]int64) (cudnn.Config, error) {
	x, w, y := sizes["x"], sizes["w"], sizes["y"]
	dims := len(x) - 2
	if dims < 2 || dims > 3 || len(w) != len(x) || len(y) != len(x) || w[1] < 1 || x[1]%w[1] != 0 {
		return cudnn.Config{}, fmt.Errorf("x, w, y have %d, %d, %d dimensions: need 4 or 5", len(x), len(w), len(y))
	}
	c := cudnn.Config{Dim: dims, N: x[0], Ci: x[1], Co: y[1], Groups: x[1] / w[1]}
	for _, part := range []struct {
		to   *[3]int64
		from []int64
	}{
		{&c.In, x[2:]},
		{&c.K, w[2:]},
		{&c.Out, y[2:]},
		{&c.Stride, sizes["stride"]},
		{&c.Pad, sizes["pad"]},
		{&c.Dilation, sizes["dilation"]},
	} {
		if len(part.from) != dims {
			return c, fmt.Errorf("a list has %d numbers: need one for each of %d dimensions", len(part.from), dims)
		}
		copy(part.to[:], part.from)
	}
	return c, nil
}

func channelsLast(tensor string) bool {
	dims, strides, _ := strings.Cut(tensor, ";s=")
	d, err := parseNumbers(dims)
	s, failed := parseNumbers(strides)
	return err == nil && failed == nil && len(d) == len(s) && len(d) > 2 && d[1] > 1 && s[1] == 1
}

func parseNumbers(list string) ([]int64, error) {
	var all []int64
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}
