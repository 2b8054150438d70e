// Package capture makes .pt2 files of users' models. It runs a script of vprof in the user's Python, where the model
// and its libraries are installed. vprof itself executes none of the model's code.
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

// Script returns, as one file, the Python script that exports a model and observes its forward.
var Script = sync.OnceValue(assemble)

//go:embed capture.py
var script string

// scriptModules are the Python modules of the script. Each begins with a description of its purpose.
//
//go:embed vprof_model.py vprof_export.py vprof_observe.py vprof_device.py vprof_graph.py vprof_known.py
//go:embed vprof_backward.py vprof_host.py vprof_child.py vprof_choices.py vprof_kernels.py
var scriptModules embed.FS

// assemble inserts the modules into the script, which imports them by name.
func assemble() string {
	texts := map[string]string{}
	names, err := scriptModules.ReadDir(".")
	for _, f := range names {
		var text []byte
		text, err = scriptModules.ReadFile(f.Name())
		texts[strings.TrimSuffix(f.Name(), ".py")] = string(text)
	}
	literal, wrong := json.Marshal(texts) // a literal of Python, too
	if errors.Join(err, wrong) != nil {
		panic("capture: the script is not whole") // it is in the binary
	}
	const first = "\nimport vprof_export\n"
	return strings.Replace(script, first, "\nfind_parts("+string(literal)+")\n"+first, 1)
}

// Options selects the model to capture, and how.
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
	// Task and Attention are for models of transformers: the training task and attn_implementation. Empty means the
	// configuration's own.
	Task, Attention string
	// Size is the height and width of images in pixels, Seq the sequence length, and Samples the length of audio. Zero
	// means the script's default.
	Size, Seq, Samples int
	// Python is the interpreter; empty is python3 or python in PATH.
	Python string
	// Verbose copies all of Python's output to this process's stderr.
	Verbose bool
}

// Outcome is the result of a capture.
type Outcome struct {
	// File is the path of the written file. Bytes is the file's size, Nodes the number of nodes in the graph.
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Nodes int    `json:"nodes"`
	// Symbols are the dynamic sizes. AnyBatch reports whether the file can be planned at any batch size: the batch is
	// dynamic, or vprof knows which integers in the graph depend on it.
	Symbols  []string `json:"symbols"`
	AnyBatch bool     `json:"batch"`
	// Notes are warnings about the file.
	Notes []string `json:"notes"`
}

// SameCommand is advice in error messages: the command that records a step instead of exporting a graph.
const SameCommand = "the same command with --step"

// A RefusedError is the failure of a capture that the user can fix.
type RefusedError struct {
	// What is the problem, Do how to fix it; Do may be empty.
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

// args returns the options as command-line arguments of the script.
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
