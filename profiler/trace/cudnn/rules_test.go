package cudnn_test

import (
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// rules are the rules of cuDNN 9.19, with which the records were made.
var rules = func() *cudnn.Rules {
	s, err := stack.Lookup("2.11")
	if err != nil {
		panic(err)
	}
	return s.Rules().Convolutions
}()
