package trace_test

import (
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// rules are the release's behind the tests' numbers.
var rules = func() trace.Rules {
	s, err := stack.Lookup("2.11")
	if err != nil {
		panic(err)
	}
	return s.Rules()
}()
