package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace"
)

// A tensor that a backward releases before its end leaves room for tensors that it makes
// afterwards, whether autograd or a hook keeps it.
func TestDroppedTensorsMakeRoomWithinBackward(t *testing.T) {
	peak := func(drops, hooked bool) int64 {
		tape := trace.New(ada, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := heads(tape, trace.F32, 1<<20)
		fn := &trace.Function{
			Name: "MadeBackward",
			Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
				y, kept := f.Bind(in[0].EmptyLike()), f.Bind(f.Tape().Empty(trace.F32, 1<<22))
				ctx.SaveForBackward(kept, nil)
				return []*tensor{y}
			},
			Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
				require.NotNil(t, ctx.Saved(0))
				if drops {
					ctx.Drop(0)
					ctx.Drop(0) // nothing more to release
					require.Nil(t, ctx.Saved(0))
				}
				f.Bind(f.Tape().Empty(trace.F32, 1<<22))
				return []*tensor{f.Bind(grads[0].EmptyLike())}
			},
		}
		var y *tensor
		run := func() { y = f.Bind(f.Apply(fn, x)[0]) }
		if hooked {
			tape.SaveOnCPU(false, run)
		} else {
			run()
		}
		f.Bind(y.Sum(false)).Backward()
		f.End()
		p := tape.Program()
		require.NoError(t, p.Validate())
		return p.Peak()
	}
	for _, hooked := range []bool{false, true} {
		require.Equal(t, int64(4<<22), peak(false, hooked)-peak(true, hooked), "hooked: %t", hooked)
	}
}
