package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/planner"
)

// VPROF_CASES is how many random cases are judged by all verbs, in place of a few. A case takes a
// second or two.
const casesVariable = "VPROF_CASES"

// aFewCases bounds a property whose cases take long; what rapid found before is tried first.
func aFewCases(t *testing.T, few int) {
	if n, err := strconv.Atoi(os.Getenv(casesVariable)); err == nil {
		few = n
	}
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	require.NoError(t, checks.Set(strconv.Itoa(few)))
	t.Cleanup(func() { _ = checks.Set(before) })
}

// judged are the boards and models of the cases: of every architecture, and of all that differ in
// what they keep and how they validate.
var (
	judgedBoards = []string{
		"v100-16", "t4", "rtx-2080-ti", "a30", "a100-40", "rtx-3060", "a10", "l4", "rtx-4090", "h100", "h20",
		"rtx-5060-ti",
	}
	judgedModels = []string{
		"redimnet-b0", "redimnet-b2", "patch-vqvae", "spectrogram-gan", "bdslw-spoter", "naics-embedder-stage01",
		"vit-ti16-224", "vit-s16-224", "resnet18", "unet", "bert-base", "gpt2", "llama-tiny", "whisper-tiny",
		"wav2vec2-base",
	}
)

// A training is a case as flags, and the memory of its board.
type training struct {
	models.Model
	flags  []string
	boards []string
	// memory is what the board is taken to have, in MiB.
	memory int
}

func drawTraining(t *rapid.T, registry *models.Registry) training {
	m, err := registry.Lookup(rapid.SampledFrom(judgedModels).Draw(t, "model"))
	require.NoError(t, err)
	out := training{
		Model: m, boards: rapid.Permutation(judgedBoards).Draw(t, "boards")[:2],
		memory: rapid.IntRange(1200, 12<<10).Draw(t, "MiB"),
		flags: []string{
			"--model=" + m.Name, "--stage=" + rapid.SampledFrom(m.Stages).Draw(t, "stage"),
			"--amp=" + rapid.SampledFrom([]string{"none", "fp16", "bf16"}).Draw(t, "amp"),
			fmt.Sprintf("--checkpointing=%v", rapid.Bool().Draw(t, "checkpointing")),
			"--torch=" + rapid.SampledFrom([]string{"2.15", "2.11"}).Draw(t, "torch"),
		},
	}
	if !strings.Contains(out.flags[1], "inference") {
		out.flags = append(out.flags,
			"--optimizer="+rapid.SampledFrom([]string{"adamw", "sgd", "adafactor"}).Draw(t, "optimizer"))
	}
	for _, s := range m.Settings {
		if s.Name == "seq-len" {
			out.flags = append(out.flags, fmt.Sprintf("--seq-len=%d", rapid.IntRange(16, 256).Draw(t, s.Name)))
		}
	}
	return out
}

// on are the flags of the training on one of its boards.
func (c training) on(boards ...string) []string {
	return append(c.flags[:len(c.flags):len(c.flags)], "--gpu="+strings.Join(boards, ","),
		fmt.Sprintf("--gpu-memory=%dMiB", c.memory))
}

// answer runs a verb and decodes its JSON.
func answer[T any](t *rapid.T, registry *models.Registry, verb string, flags ...string) (out T, code exitCode) {
	form := "--format=json"
	if verb == "report" {
		form = "--to=json"
	}
	a, stdout, stderr := desk()
	a.models, a.residuals = sync.OnceValue(func() *models.Registry { return registry }), planner.Residuals
	code = run(t.Context(), a, append([]string{verb, form}, flags...))
	require.Contains(t, []exitCode{exitFine, exitNegative}, code, "%s %v: %s", verb, flags, stderr)
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &out))
	return out, code
}

// largestOn is the largest safe batch by fit, on each of some boards, with further flags.
func (c training) largestOn(t *rapid.T, registry *models.Registry, boards []string, flags ...string) []report.Choice {
	f, _ := answer[report.Fit](t, registry, "fit", append(c.on(boards...), flags...)...)
	require.Len(t, f.Choices, len(boards))
	return f.Choices
}

// Safe is one thing: whichever verb is asked, however much else is asked with it.
func TestVerbsAgreeOnWhatIsSafe(t *testing.T) {
	aFewCases(t, 3)
	registry := all.Models()
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		c := drawTraining(t, registry)
		board := c.boards[0]
		fit := c.largestOn(t, registry, []string{board})[0]
		if fit.Refused != "" {
			t.Skip(fit.Refused)
		}
		largest := fit.Largest

		times, _ := answer[report.Times](t, registry, "time", c.on(board)...)
		require.Equal(t, largest, times.Rows[0].Batch, "time")
		for _, both := range c.largestOn(t, registry, c.boards) {
			if both.Device == fit.Device {
				require.Equal(t, largest, both.Largest, "fit of %v", c.boards)
			}
		}
		judge := func(batch int, safe bool) {
			at := fmt.Sprintf("--batch=%d", batch)
			smoke, code := answer[report.Smoke](t, registry, "smoke", append(c.on(board), at)...)
			require.Equal(t, safe, smoke.Safe, "smoke at %d, where fit says %d", batch, largest)
			require.Equal(t, safe, code == exitFine)
			require.Equal(t, safe, smoke.Reason == "")
			if !safe && smoke.LargestBatch > 0 {
				require.Equal(t, largest, smoke.LargestBatch, "smoke at %d", batch)
			}
			plan, _ := answer[report.Report](t, registry, "plan", append(c.on(board), at)...)
			require.Equal(t, safe, plan.Points[0].Estimate.Unsafe == "", "plan at %d, fit says %d", batch, largest)
			file := filepath.Join(folder, "run.json")
			sweep, _ := answer[report.Report](t, registry, "sweep", append(c.on(board), at, "--export="+file)...)
			require.Equal(t, safe, sweep.Points[0].Estimate.Unsafe == "", "sweep at %d, fit says %d", batch, largest)
			again, _ := answer[report.Report](t, registry, "report", file)
			require.Equal(t, sweep.Points, again.Points)
		}
		if largest > 0 {
			judge(largest, true)
			judge(rapid.IntRange(least(fit), largest).Draw(t, "below"), true)
		}
		if largest < planner.SearchedBatch {
			judge(max(largest+1, least(fit)), false)
		}
	})
}

// least is the smallest batch that PyTorch takes: batch norm refuses one sample.
func least(c report.Choice) int {
	if c.Largest == 1 {
		return 1
	}
	return 2
}

// More memory, more of it to fill, and more risk never take a smaller batch, and multiples are
// of the batch that is safe.
func TestTheLargestSafeBatchGrowsWithWhatIsAllowed(t *testing.T) {
	aFewCases(t, 3)
	registry := all.Models()
	rapid.Check(t, func(t *rapid.T) {
		c := drawTraining(t, registry)
		find := func(c training, flags ...string) report.Choice {
			return c.largestOn(t, registry, c.boards[:1], flags...)[0]
		}
		fit := find(c)
		if fit.Refused != "" {
			t.Skip(fit.Refused)
		}
		more := c
		more.memory += rapid.IntRange(1, 4<<10).Draw(t, "more MiB")
		require.GreaterOrEqual(t, find(more).Largest, fit.Largest, "memory")

		share := rapid.Float64Range(.3, .85).Draw(t, "share")
		require.LessOrEqual(t, find(c, fmt.Sprintf("--safety-margin=%v", share)).Largest, fit.Largest, "margin")

		low := rapid.Float64Range(.001, .4).Draw(t, "risk")
		high := rapid.Float64Range(low, .45).Draw(t, "higher risk")
		require.LessOrEqual(t, find(c, fmt.Sprintf("--risk=%v", low)).Largest,
			find(c, fmt.Sprintf("--risk=%v", high)).Largest, "risk")

		eights := find(c, "--batch-multiple=8")
		require.Equal(t, fit.Largest, eights.Largest)
		require.LessOrEqual(t, eights.Batch, fit.Largest)
		require.True(t, eights.Batch%8 == 0 || fit.Largest < 8, "%d of %d", eights.Batch, fit.Largest)
	})
}

// Batch 16 of this case needs 1.45 times what batch 17 does, the most that was found: where 16 is not safe,
// 17 is not either.
func TestABatchIsNotSafeWhereASmallerOneIsNot(t *testing.T) {
	for _, batch := range []string{"16", "17"} {
		a, _, stderr := desk()
		a.models, a.residuals = all.Models, planner.Residuals
		code := run(t.Context(), a, []string{
			"smoke", "--torch=2.11", "--model=redimnet-b6-orig", "--stage=frozen", "--amp=none",
			"--checkpointing=false", "--gpu=t4", "--gpu-memory=3400MiB", "--batch=" + batch,
		})
		require.Equal(t, exitNegative, code, "%s %s", batch, stderr)
	}
}
