// Package capture makes .pt2 files of users' models. It runs a script of vprof in the user's Python, where the model
// and its libraries are installed; vprof itself executes none of the model's code.
package capture

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/lists"
)

// Script returns the Python that exports a model and watches its forward, in one file.
var Script = sync.OnceValue(assemble)

//go:embed capture.py
var script string

// parts are modules of the script: the model that is named and its inputs, its export, what its forward does in Python
// and the exported graph besides that, what models read of numbers that their code has, what custom autograd.Functions
// do in backward, how crashes are told, where Inductor decides by the batch size, and what kernels it launches.
//
//go:embed vprof_model.py vprof_export.py vprof_observe.py vprof_gpu.py vprof_graph.py vprof_known.py
//go:embed vprof_backward.py vprof_host.py vprof_child.py vprof_choices.py vprof_kernels.py
var parts embed.FS

// assemble inserts the parts into the script, where Python finds them by name.
func assemble() string {
	texts := map[string]string{}
	names, err := parts.ReadDir(".")
	for _, f := range names {
		var text []byte
		text, err = parts.ReadFile(f.Name())
		texts[strings.TrimSuffix(f.Name(), ".py")] = string(text)
	}
	literal, wrong := json.Marshal(texts) // a literal of Python, too
	if errors.Join(err, wrong) != nil {
		panic("capture: the script is not whole") // it is in the binary
	}
	const first = "\nimport vprof_export\n"
	return strings.Replace(script, first, "\nfind_parts("+string(literal)+")\n"+first, 1)
}

// Options say what to capture.
type Options struct {
	// Spec is the model: timm:NAME, torchvision:NAME, hf:[ORG/NAME@]config.json,
	// pkg.module:callable or file.py:callable.
	Spec string
	// Output is the file to write.
	Output string
	// Inputs are the arguments of forward, as name=dtype[dim,...].
	Inputs []string
	// InputsFrom is a Python function that returns an example of the inputs, as
	// file.py:function or pkg.module:function.
	InputsFrom string
	// Task and Attention are of models of transformers: what they are trained
	// for, and their attn_implementation. Empty: the configuration's own.
	Task, Attention string
	// Size is the height and width of images, in pixels, Seq the tokens of a
	// text, and Samples the length of a sound. 0 is the default of the script.
	Size, Seq, Samples int
	// Python is the interpreter. Empty: python3 or python of the PATH.
	Python string
	// Verbose copies all of Python's output to stderr of this process.
	Verbose bool
}

// Outcome is the result of a capture.
type Outcome struct {
	// File is the written file, of Bytes bytes and Nodes nodes.
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Nodes int    `json:"nodes"`
	// Symbols are the sizes that stay open. AnyBatch reports whether the file
	// works at any batch size, by a symbol or by the numbers that follow it.
	Symbols  []string `json:"symbols"`
	AnyBatch bool     `json:"batch"`
	// Notes are warnings about the file.
	Notes []string `json:"notes"`
}

// SameCommand names, in a refusal, the command that records a step in place of a graph.
const SameCommand = "the same command with --step"

// A RefusedError is a reason why a capture fails that the user can change.
type RefusedError struct {
	// What is wrong, and what to Do about it; Do may be empty.
	What string `json:"error"`
	Do   string `json:"do"`
}

func (e *RefusedError) Error() string {
	if e.Do == "" {
		return e.What
	}
	return e.What + "\n  " + e.Do
}

// Usage marks the error as bad input.
func (e *RefusedError) Usage() bool { return true }

// Run captures a model. The error is a [*RefusedError] if the user can fix the cause.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	s := program{name: "vprof_capture.py", text: Script(), purpose: "capture", python: o.Python, verbose: o.Verbose}
	made := new(Outcome)
	if err := s.run(ctx, func(string) []string { return o.args() }, made); err != nil {
		return nil, err
	}
	return made, nil
}

// args returns the options as arguments of the script.
func (o *Options) args() []string {
	inputs := lists.Map(o.Inputs, func(input string) string { return "--input=" + input })
	args := append([]string{"--output", o.Output}, inputs...)
	for _, f := range [][2]string{
		{"inputs-from", o.InputsFrom},
		{"task", o.Task},
		{"attention", o.Attention},
		{"size", strconv.Itoa(o.Size)},
		{"seq", strconv.Itoa(o.Seq)},
		{"samples", strconv.Itoa(o.Samples)},
	} {
		if f[1] != "" && f[1] != "0" {
			args = append(args, "--"+f[0]+"="+f[1])
		}
	}
	if o.Verbose {
		args = append(args, "--verbose")
	}
	return append(args, "--", o.Spec)
}
