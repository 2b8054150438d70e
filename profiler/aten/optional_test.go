package aten

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// Every optional tensor of an operator may be None: recorded calls go through forward and
// backward without each combination of theirs, or are refused.
func TestOptionalTensorsMayBeNone(t *testing.T) {
	const callsOfEach = 6 // they differ in type, layout and which arguments want gradients
	seen := map[string]int{}
	var failures []string
	for _, c := range loadCalls(t, *callsFile) {
		op, ok := ByTarget(c.Target)
		if !ok || seen[c.Target] == callsOfEach {
			continue
		}
		optional := c.optionalTensors(op)
		if len(optional) == 0 {
			continue
		}
		seen[c.Target]++
		for subset := 1; subset < 1<<len(optional); subset++ {
			var none []string
			for i, name := range optional {
				if subset>>i&1 == 1 {
					none = append(none, name)
				}
			}
			if failure := c.crash(op, none); failure != "" {
				failures = append(failures, fmt.Sprintf("%s with None for %v: %s", c.Target, none, failure))
			}
		}
	}
	require.NotEmpty(t, seen)
	require.Empty(t, failures)
}

// optionalTensors returns the arguments of the call that may be None and are tensors.
func (c *recordedCall) optionalTensors(op *Operator) []string {
	var names []string
	for _, a := range c.Args {
		name := a[0].(string)
		if i := op.index(name); i >= 0 && op.Arguments[i].Type == "Tensor?" && a[1] != nil {
			names = append(names, name)
		}
	}
	return names
}

// crash makes the call with None for some arguments, and gives the error of Go's that it ends
// with, "" if it ends well or is refused.
func (c *recordedCall) crash(op *Operator, none []string) (failure string) {
	release, err := stack.Lookup("2.11")
	if err != nil {
		return err.Error()
	}
	tape := trace.New(opvectors.GPUs["rtx-5060-ti"], release.Rules(), trace.Options{Warm: true})
	frame := tape.Frame()
	in := make([]*trace.Tensor, len(c.In))
	for i := range in {
		in[i] = c.input(frame, i)
	}
	var given []Arg
	for _, a := range c.Args {
		value := c.value(a[1], in)
		if slices.Contains(none, a[0].(string)) {
			value = nil
		}
		given = append(given, Arg{a[0].(string), value})
	}
	args, err := op.Bind(given...)
	if err != nil {
		return err.Error()
	}
	defer func() {
		if e, ok := recover().(runtime.Error); ok {
			failure = fmt.Sprintf("backward: %v", e)
		}
	}()
	values, err := op.Call(tape, args)
	if err != nil {
		if strings.Contains(err.Error(), "runtime error") {
			return err.Error()
		}
		return ""
	}
	for _, x := range frame.BindAll(tensorsOf(values)) {
		if x != nil && x.RequiresGrad() {
			trace.Backward([]*trace.Tensor{x}, []*trace.Tensor{frame.Bind(x.NewGradient())})
			break
		}
	}
	return ""
}
