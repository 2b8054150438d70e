package claims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/claims"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

func claimsOf(t *testing.T, model string) []report.Claim {
	m, err := all.Models().Lookup(model)
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	found, err := claims.AnswersFor(t.Context(), m, gpu, steptest.Exactly)
	require.NoError(t, err)
	return found
}

// find returns the claim of a section, quantity and batch.
func find(t *testing.T, claims []report.Claim, where, of, batch string) report.Claim {
	for _, c := range claims {
		if c.Where == where && c.Quantity == of && c.Batch == batch {
			return c
		}
	}
	require.Fail(t, "there is no such claim", "%s, %s, %s", where, of, batch)
	return report.Claim{}
}

// Where the guides are right and where they are not, by the facts about the
// systems: the weights add up, what is on the GPU besides does not.
func TestGuidesAreSetAgainstWhatIsTrue(t *testing.T) {
	sample.Whole(t)
	spoter := claimsOf(t, "bdslw-spoter")
	require.Equal(t, "right", find(t, spoter, "breakdown", "weights", "8").Judge(), "1.3 M parameters in fp32")
	require.Regexp(t, `^\d\.\d× too high$`, find(t, spoter, "minimum requirements", "device", "8").Judge())
	half := find(t, spoter, "optimization techniques", "allocated", "8")
	require.Less(t, half.Answer.Share.High, -0.3, "autocast needs more: head width 12 falls off the fused kernels")
	require.Equal(t, "fp32", half.Baseline)
	require.Equal(t, "right", find(t, spoter, "GPU recommendations", "fits", "16-24").Judge())
	inference := find(t, spoter, "phase 5", "device", "16-32").Answer.Bytes
	require.Less(t, inference.Low, inference.High, "over the batch sizes")

	naics := claimsOf(t, "naics-embedder-stage01")
	require.Equal(t, "wrong", find(t, naics, "Quadro RTX 6000", "fits", "45").Judge())
	require.Equal(t, "quadro-rtx-6000", find(t, naics, "Quadro RTX 6000", "device", "45").Answer.GPU)
	require.InDelta(t, 0.139, find(t, naics, "optimization techniques", "trainable", "").Answer.Share.Low, 0.001,
		"14,689,413 of 105,542,277")

	redimnet := claimsOf(t, "redimnet-b2")
	ultra := find(t, redimnet, "section 3, ultra", "device", "96")
	require.NotNil(t, ultra.Answer.Bytes, "with torch.compile")
	require.Contains(t, ultra.Conditions, "torch.compile")
	second := find(t, redimnet, "section 6, batch 32", "time", "32")
	require.Equal(t, "~0.5 seconds an iteration", second.Quote)
	require.Less(t, second.Answer.Seconds.High, 0.5, "the GPU is faster than that")
	require.Regexp(t, `^outside: \d+\.\d× too short$`,
		find(t, redimnet, "section 3, conservative", "time", "32").Judge(),
		"120 steps a second are more than it can do")
	days := find(t, redimnet, "section 7, other GPUs", "time", "48-64")
	require.Greater(t, days.Answer.Seconds.High, 3600.0)

	require.Equal(t, "-", find(t, claimsOf(t, "patch-vqvae"), "recommended hardware, minimal", "host memory",
		"8").Judge())
	require.Contains(t, find(t, claimsOf(t, "spectrogram-gan"), "tuning, 8 GB", "fits", "12").Answer.Refused,
		"mat1 and mat2 shapes cannot be multiplied")
	open := find(t, redimnet, "section 1, memory scaling", "device", "32").Answer.Bytes
	require.Greater(t, open.High, 2*open.Low, "frozen and full")
	require.Nil(t, find(t, redimnet, "section 1, training batch", "tensor", "32").Answer)
	require.Equal(t, "right", find(t, redimnet, "section 4, accumulation", "allocated", "32").Judge())
	added := find(t, redimnet, "section 1, training batch", "added by loss", "32").Answer.Bytes
	require.InDelta(t, 33<<20, added.Low, 3<<20, "the four losses")

	for _, c := range claimsOf(t, "patch-vqvae") {
		if c.Where == "options, stride 32" {
			require.Zero(t, c.Answer.Share.High, "stride alone does not change memory")
			require.Equal(t, "too high", c.Judge())
		}
	}
	saved := find(t, claimsOf(t, "spectrogram-gan"), "summary", "device", "24")
	require.Equal(t, "13.00 GiB of data on the GPU", saved.Baseline)
	require.GreaterOrEqual(t, saved.Answer.Bytes.Low, int64(13<<30))
	require.Empty(t, claimsOf(t, "resnet50"))
}

// What the column shows is a claim of that very case.
func TestPointsHaveTheClaimsOfTheirCase(t *testing.T) {
	m, err := all.Models().Lookup("bdslw-spoter")
	require.NoError(t, err)
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{}, steptest.Exact())
	require.NoError(t, err)
	r, err := sweep.Run(t.Context(), setup, steptest.On(t, gpu), sweep.Options{Batches: []int{8, 9, 16}},
		func(*report.Report) error {
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, "~2.5-3 GB", r.Points[0].Claims[0].Quote)
	require.Equal(t, report.ByteRange{Low: 5 << 29, High: 3 << 30}, *r.Points[0].Claims[0].Bytes)
	require.Len(t, r.Points[1].Claims, 1, "8-16")
	plan, err := sweep.Plan(t.Context(), setup, gpu, []int{8, 9, 16})
	require.NoError(t, err)
	for i := range plan.Points {
		require.Equal(t, plan.Points[i].Claims, r.Points[i].Claims)
		require.Nil(t, r.Points[i].Claims[0].Answer)
	}
	half, err := step.New(m, models.Case{AMP: "fp16"}, steptest.Exact())
	require.NoError(t, err)
	r, err = sweep.Plan(t.Context(), half, gpu, []int{8})
	require.NoError(t, err)
	require.Empty(t, r.Points[0].Claims, "said of fp32, as the system trains")
}
