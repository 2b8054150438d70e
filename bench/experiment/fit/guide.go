package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// The formula of the NAICS embedder's scripts/optimize_gpu_config.py, as its
// authors wrote it. It is kept to show what it says beside what is true: it
// counts activations as four half-precision maps per layer with working
// checkpointing, and weights in half precision.
const (
	guideChannels   = 4    // text encoders
	guideHidden     = 384  // width of an encoder
	guideLength     = 512  // tokens of a text
	guideRank       = 8    // of LoRA
	guideExperts    = 4    // of the mixture, two of which see a sample
	guideWidth      = 1024 // of an expert
	guideLayers     = 6    // of an encoder
	guideHalf       = 2    // bytes
	guideRecomputed = 0.25 // share of activations left by checkpointing
	guideMargin     = 0.85 // of the memory
	guideOverhead   = 1500 // MiB of context and framework
	guideMaxBatch   = 128  // the script looks no further
	guideMiB        = 1 << 20
	guideBase       = 22_700_000 // parameters of an encoder
)

// guideProfiles are the settings of the curriculum's stages.
var guideProfiles = []struct {
	name      string
	negatives int
	model     string // registry name of the same step
}{
	{"01_stage (Early)", 24, "naics-embedder-stage01"},
	{"02-05_stage (Later)", 8, "naics-embedder"},
}

// GuideEffectiveBatch is the effective batch that the script aims at unless
// told otherwise.
const GuideEffectiveBatch = 256

// guideParts are the MiB of weights, optimizer, gradients, activations, batch
// data and overhead.
func guideParts(batch, negatives int) [6]float64 {
	const n, d, e, h = guideChannels, guideHidden, guideExperts, guideWidth
	parameters := float64(guideBase*n + n*(2*guideRank*d*50) + e*2*(d*n)*h + (d*n)*e + (d*n)*d)
	sequences := float64(batch * (2 + negatives))
	perSequence := float64(n*(guideLength*guideLength*12+guideLayers*guideLength*d*4) + 2*n*d + 2*2*h + 2*d)
	return [6]float64{
		parameters * guideHalf / guideMiB,
		parameters * 8 / guideMiB,
		parameters * guideHalf / guideMiB,
		sequences * perSequence * guideRecomputed * guideHalf / guideMiB,
		sequences * n * guideLength * 2 * 8 / guideMiB,
		guideOverhead,
	}
}

var guideNames = [6]string{"model parameters", "optimizer state", "gradients", "activations", "batch data", "overhead"}

func guideTotal(batch, negatives int) float64 {
	var sum float64
	for _, part := range guideParts(batch, negatives) {
		sum += part
	}
	return sum
}

// Guide is what the NAICS embedder's own script recommends for a board of a
// memory in bytes and an effective batch: its two profiles. If not even a batch
// of one is within its margin, it recommends that all the same.
func Guide(memory int64, effective int) []report.GuideProfile {
	mib := float64(memory) / guideMiB
	var profiles []report.GuideProfile
	for _, p := range guideProfiles {
		batch := 1
		for b := 2; b <= guideMaxBatch && guideTotal(b, p.negatives) <= mib*guideMargin; b++ {
			batch = b
		}
		g := report.GuideProfile{Profile: p.name, Batch: batch, Accumulate: max(1, effective/batch)}
		g.EffectiveBatch = g.Batch * g.Accumulate
		for i, part := range guideParts(batch, p.negatives) {
			g.Components = append(g.Components, report.Component{Name: guideNames[i], Bytes: int64(part * guideMiB)})
			g.Total += int64(part * guideMiB)
		}
		g.Utilization = guideTotal(batch, p.negatives) / mib
		profiles = append(profiles, g)
	}
	return profiles
}

// GuideModels are the registry's names of the steps behind the profiles of
// [Guide], in the same order.
func GuideModels() []string {
	var names []string
	for _, p := range guideProfiles {
		names = append(names, p.model)
	}
	return names
}

// Profiles are what is recommended for the parts of the NAICS embedder's
// curriculum that its guide tells apart, with the precision of its authors, within
// the budget of the search on its one board. The effective batch is that of the
// search, or else the script's.
func Profiles(ctx context.Context, s Search, lookup func(string) (models.Model, error)) ([]report.Profile, error) {
	s.Effective = cmp.Or(s.Effective, GuideEffectiveBatch)
	var out []report.Profile
	for _, p := range guideProfiles {
		var err error
		if s.Model, err = lookup(p.model); err != nil {
			return nil, err
		}
		c := s.Model.Default
		c.AllocConf = s.allocConf()
		choice, refused, err := s.choice(ctx, s.GPUs[0], c, c.Batch)
		if err = errors.Join(refused, err); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		out = append(out, report.Profile{Name: p.name, Negatives: p.negatives, Choice: choice})
	}
	return out, nil
}

// allocConf is what the cases of the search have in common.
func (s *Search) allocConf() string {
	if len(s.Cases) == 0 {
		return ""
	}
	return s.Cases[0].AllocConf
}

// Verify adds to a profile what its batch needs in truth, by the model's
// recording with the author's precision, and the largest batch within the
// budget of the search.
func Verify(ctx context.Context, s Search, m models.Model, g *report.GuideProfile) error {
	gpu, c := s.GPUs[0], m.Default
	c.AllocConf = s.allocConf()
	c.Accumulate = step.RecordedSteps(g.Accumulate)
	setup, err := step.New(m, c, s.Evidence)
	if err != nil {
		return err
	}
	q, err := s.batchSearch(setup, gpu)
	if err != nil {
		return err
	}
	t, err := q.try(ctx, g.Batch, c.Accumulate)
	if err != nil {
		return err
	}
	g.True = step.EstimateOf(t.Estimate)
	g.TrueLargest, err = q.largest(ctx, c.Accumulate)
	return err
}
