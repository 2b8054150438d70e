package trace_test

import (
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// rules are those that the tests' figures are of.
var rules = func() trace.Rules {
	s, err := stack.Lookup("2.11")
	if err != nil {
		panic(err)
	}
	return s.Rules()
}()
