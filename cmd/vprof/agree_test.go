package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/steptest"
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

// A training is a case as flags, on boards that are taken to have some memory.
type training struct {
	*judges
	flags  []string
	boards []string
	// memory is that of the boards, in MiB.
	memory int
}

// judges are the verbs, which share what they try.
type judges struct {
	registry *models.Registry
	trials   steptest.Shared
	folder   string
}

// memories is how many memories of its boards a training is judged with: cases of the property.
const memories = 8

func (j *judges) draw(t *rapid.T) training {
	j.trials.Forget()
	m, err := j.registry.Lookup(rapid.SampledFrom(judgedModels).Draw(t, "model"))
	require.NoError(t, err)
	out := training{
		judges: j, boards: rapid.Permutation(judgedBoards).Draw(t, "boards")[:2],
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

// drawMemory is the training on boards with some memory.
func (c training) drawMemory(t *rapid.T) training {
	c.memory = rapid.IntRange(1200, 12<<10).Draw(t, "MiB")
	return c
}

// on are the flags of the training on boards.
func (c training) on(boards ...string) []string {
	return append(c.flags[:len(c.flags):len(c.flags)], "--gpu="+strings.Join(boards, ","),
		fmt.Sprintf("--gpu-memory=%dMiB", c.memory))
}

// tester is a test, or a case of a property.
type tester interface {
	require.TestingT
	Context() context.Context
}

// answer runs a verb and decodes its JSON.
func answer[T any](t tester, c training, verb string, flags ...string) (out T, code exitCode) {
	form := "--format=json"
	if verb == "report" {
		form = "--to=json"
	}
	a, stdout, stderr := desk()
	a.models, a.residuals, a.trials = func() *models.Registry { return c.registry }, planner.Residuals, &c.trials
	code = run(t.Context(), a, append([]string{verb, form}, flags...))
	require.Contains(t, []exitCode{exitFine, exitNegative}, code, "%s %v: %s", verb, flags, stderr)
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &out))
	return out, code
}

// largestOn is the largest safe batch by fit, on each of some boards, with further flags.
func (c training) largestOn(t tester, boards []string, flags ...string) []report.Choice {
	f, _ := answer[report.Fit](t, c, "fit", append(c.on(boards...), flags...)...)
	require.Len(t, f.Choices, len(boards))
	return f.Choices
}

// Safe is one thing: whichever verb is asked, however much else is asked with it.
func TestVerbsAgreeOnWhatIsSafe(t *testing.T) {
	aFewCases(t, 1)
	j := &judges{registry: all.Models(), folder: t.TempDir()}
	rapid.Check(t, func(t *rapid.T) {
		c := j.draw(t)
		for range memories {
			c.drawMemory(t).agree(t)
		}
	})
}

// agree asks every verb about the training.
func (c training) agree(t *rapid.T) {
	board := c.boards[0]
	fit := c.largestOn(t, []string{board})[0]
	if fit.Refused != "" {
		t.Skip(fit.Refused)
	}
	largest := fit.Largest
	times, _ := answer[report.Times](t, c, "time", c.on(board)...)
	require.Equal(t, largest, times.Rows[0].Batch, "time")
	for _, both := range c.largestOn(t, c.boards) {
		if both.Device == fit.Device {
			require.Equal(t, largest, both.Largest, "fit of %v", c.boards)
		}
	}
	if largest > 0 {
		c.judge(t, largest, largest, true)
		c.judge(t, rapid.IntRange(least(fit), largest).Draw(t, "below"), largest, true)
	}
	if largest < planner.SearchedBatch {
		c.judge(t, max(largest+1, least(fit)), largest, false)
	}
}

// judge asks the verbs that take a batch whether it is safe.
func (c training) judge(t tester, batch, largest int, safe bool) {
	flags := append(c.on(c.boards[0]), fmt.Sprintf("--batch=%d", batch))
	smoke, code := answer[report.Smoke](t, c, "smoke", flags...)
	require.Equal(t, safe, smoke.Safe, "smoke at %d, where fit says %d", batch, largest)
	require.Equal(t, safe, code == exitFine)
	require.Equal(t, safe, smoke.Reason == "")
	if !safe && smoke.LargestBatch > 0 {
		require.Equal(t, largest, smoke.LargestBatch, "smoke at %d", batch)
	}
	plan, _ := answer[report.Report](t, c, "plan", flags...)
	require.Equal(t, safe, plan.Points[0].Estimate.Unsafe == "", "plan at %d, fit says %d", batch, largest)
	file := filepath.Join(c.folder, "run.json")
	sweep, _ := answer[report.Report](t, c, "sweep", append(flags, "--export="+file)...)
	require.Equal(t, safe, sweep.Points[0].Estimate.Unsafe == "", "sweep at %d, fit says %d", batch, largest)
	again, _ := answer[report.Report](t, c, "report", file)
	require.Equal(t, sweep.Points, again.Points)
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
	j := &judges{registry: all.Models()}
	rapid.Check(t, func(t *rapid.T) {
		c := j.draw(t).drawMemory(t)
		find := func(c training, flags ...string) report.Choice {
			return c.largestOn(t, c.boards[:1], flags...)[0]
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

// The trainer's loop keeps less than one that keeps outputs, and yet may need more of this board: where nobody has
// said the loop, a batch is safe if it is so in both.
func TestABatchIsSafeInBothLoops(t *testing.T) {
	c := training{
		judges: &judges{registry: all.Models(), folder: t.TempDir()}, boards: []string{"h20"}, memory: 2701,
		flags: []string{
			"--model=gpt2", "--stage=head", "--amp=bf16", "--checkpointing=false", "--torch=2.11", "--optimizer=adamw",
			"--seq-len=150",
		},
	}
	require.Zero(t, c.largestOn(t, c.boards)[0].Largest)
	c.judge(t, 1, 0, false)
	for loop, safe := range map[string]bool{"trainer": false, "plain": true} {
		require.Equal(t, safe, c.largestOn(t, c.boards, "--loop="+loop)[0].Largest > 0, loop)
	}
}
