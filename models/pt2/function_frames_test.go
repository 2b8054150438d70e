package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

func TestFunctionsAreFoundInStacks(t *testing.T) {
	model := export.Frame{File: "/home/me/model.py", Line: 7, Func: "forward", Source: "y = Swish.apply(x)"}
	forward := export.Frame{File: "/home/me/model.py", Line: 3, Func: "forward", Source: "return x * x.sigmoid()"}
	apply := export.Frame{File: "/x/site-packages/torch/autograd/function.py", Line: 583, Func: "apply", Source: "return super().apply(*args, **kwargs)"}
	for _, c := range []struct {
		stack      []export.Frame
		name, line string
	}{
		{[]export.Frame{model, forward}, "Swish", "model.py:7:forward"},
		{[]export.Frame{model, apply, forward}, "Swish", "model.py:7:forward"},
		{[]export.Frame{forward}, "", ""},
		{[]export.Frame{model}, "", ""},                                                       // an operator of that very line
		{[]export.Frame{model, {File: "/home/me/model.py", Line: 9, Func: "helper"}}, "", ""}, // not a Function's forward
		{[]export.Frame{{File: "/x/site-packages/torch/utils/checkpoint.py", Line: 1, Func: "checkpoint", Source: "CheckpointFunction.apply(f, x)"}, forward}, "", ""},
	} {
		name, line := functionOf(c.stack)
		require.Equal(t, []string{c.name, c.line}, []string{name, line})
	}
}
