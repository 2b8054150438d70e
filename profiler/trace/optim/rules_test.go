package optim_test

import (
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// rules holds the rules of the release that the tests' numbers come from.
var rules = func() trace.Rules {
	s, err := stack.Lookup("2.11")
	if err != nil {
		panic(err)
	}
	return s.Rules()
}()
