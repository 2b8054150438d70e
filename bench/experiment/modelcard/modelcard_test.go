package modelcard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference/guides"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// Every model has a page with its stages, and a batch whose sizes are numbers or multiples of the batch size.
func TestEveryModelHasAPage(t *testing.T) {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	for _, m := range sample.Of(all.Models().All()) {
		page, err := Describe(t.Context(), m, gpu, steptest.Exactly)
		require.NoError(t, err, m.Name)
		require.Len(t, page.Parameters, len(m.Stages), m.Name)
		for _, stage := range page.Parameters {
			require.NotEmpty(t, stage.Trains)
			require.LessOrEqual(t, stage.Trainable, stage.Total)
			require.Positive(t, stage.Total)
		}
		require.NotEmpty(t, page.Inputs, m.Name)
		grows := false
		for _, in := range page.Inputs {
			for _, size := range in.Shape {
				require.Regexp(t, `^([1-9]\d*·)?B$|^[1-9]\d*$`, size, m.Name)
			}
			grows = grows || in.Shape[0] == "B"
		}
		require.True(t, grows, m.Name)
		for _, c := range page.Claims {
			// It is answered, or the answer says why not; only single tensors are not told apart.
			require.Equal(t, c.Quantity == string(guides.TensorBytes), c.Answer == nil, c.Source())
			// A guide has no figure of the host's memory that could be right or wrong.
			if c.Answer != nil && c.Answer.Refused == "" && c.Quantity != string(guides.HostBytes) {
				require.NotEqual(t, "-", c.Judge(), c.Source())
			}
		}
	}
}

func TestPageSaysWhatABatchIsMadeOf(t *testing.T) {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	inputs := func(name string) []report.Input {
		m, err := all.Models().Lookup(name)
		require.NoError(t, err)
		in, err := inputsOf(m, gpu)
		require.NoError(t, err)
		return in
	}
	require.Equal(t, []report.Input{
		{Type: "float32", Shape: []string{"B", "1", "48000"}, Count: 1},
		{Type: "int64", Shape: []string{"B"}, Count: 1},
	}, inputs("redimnet-b2"))
	require.Equal(t, []report.Input{
		{Type: "int64", Shape: []string{"B", "512"}, Count: 16},
		{Type: "int64", Shape: []string{"24·B", "512"}, Count: 8},
	}, inputs("naics-embedder-stage01"))
	require.Equal(t, "2 × int64 [B]", inputs("patch-vqvae")[1].String())
	require.Equal(t, "7 at B=2", sizeOf(7, 9, 2, 3), "neither constant nor in proportion")
}

// The T4 has neither flash nor bf16 kernels.
func TestPageSaysWhatAttentionRunsOn(t *testing.T) {
	m, err := all.Models().Lookup("bdslw-spoter")
	require.NoError(t, err)
	backends := func(name string) (out []string) {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		all, err := attentionOf(t.Context(), m, gpu)
		require.NoError(t, err)
		for _, a := range all {
			require.EqualValues(t, 12, a.HeadWidth)
			require.True(t, a.Masked)
			out = append(out, a.Precision+" "+a.Backend)
		}
		return out
	}
	require.Equal(t, []string{"fp32 memory-efficient", "fp16 math", "bf16 math"}, backends("rtx-5060-ti"))
	require.Equal(t, backends("rtx-5060-ti"), backends("t4"))

	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = attentionOf(interrupted, m, gpu)
	require.ErrorIs(t, err, context.Canceled)
	m.Build = func(models.Case) (models.Trainer, error) { return nil, context.DeadlineExceeded }
	_, err = Describe(t.Context(), m, gpu, steptest.Exactly)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
